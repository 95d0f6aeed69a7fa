"""Open a trained run read-only: its model as a function, its checkpoints and its windows."""

import functools
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.experiment_config import Config
from anisoscope.data import corpus
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training.checkpoint import CheckpointReader
from anisoscope.utils.errors import UserError, as_value_error
from anisoscope.utils.files import read_json
from anisoscope.utils.folder import check_corpus
from anisoscope.utils.settings import from_dict


@dataclass(frozen=True)
class OpenRun:
    """A trained run: settings, text, checkpoint steps, and a reader of parameters."""

    config: Config
    corpus: Corpus
    steps: list[int]  # steps of the existing checkpoints
    # step -> saved parameters, digests checked
    params: Callable[[int], dict]

    def windows(self, count: int, seed: int = 0) -> np.ndarray:
        """Draw windows of the validation split that do not overlap, (count, context), int32."""
        context = self.config.model.context
        available = len(self.corpus.valid) // context
        if not 1 <= count <= available:
            raise ValueError(
                f"count is {count}; the validation split has {available} windows of {context}: pass 1 to {available}"
            )
        start_W = np.random.default_rng(seed).choice(available, count, replace=False) * context
        return self.corpus.valid[start_W[:, None] + np.arange(context)].astype(np.int32)

    def vectors(self, params: dict, tokens_BT: jax.Array | np.ndarray) -> jax.Array:
        """Compute the residual stream, (layers, windows, T, width).

        Layer 0 holds the embeddings, layer l the output of block l.
        """
        with jax.default_matmul_precision("highest"):
            return self._model.apply(*jax.tree.map(jnp.asarray, (params, tokens_BT)))[1].resid_LBTD

    @functools.cached_property
    def _model(self) -> transformer.Model:
        return transformer.build(self.config.model, self.corpus.vocab_size, "float32")


def open_finished_run(folder: str | pathlib.Path) -> OpenRun:
    """Open the run in a folder such as `runs/quickstart/decoder`.

    Raises:
        UserError: the folder holds no run, or its text has changed since training.
    """
    path = pathlib.Path(folder)
    settings: dict[str, Any] = read_json(path / "config.json", "name the folder of a trained run")
    config = from_dict(settings, Config)
    if not (path / "checkpoints").is_dir():
        raise UserError(
            f"{path} has no checkpoints; name the folder of a run, such as runs/quickstart/decoder"
        )
    text = corpus.load_corpus(config.data, config.model.context)
    check_corpus(path, text.record())
    store = CheckpointReader(path / "checkpoints")
    return OpenRun(
        config,
        text,
        store.steps(),
        as_value_error()(functools.partial(read_params, path, store)),
    )


def read_params(run: pathlib.Path, store: CheckpointReader, step: int) -> dict:
    """Read the parameters of a step as NumPy arrays; raise UserError if it has no checkpoint."""
    if step not in store.steps():
        known = ", ".join(map(str, store.steps()))
        raise UserError(f"{run} has no checkpoint of step {step}; pass one of {known}")
    return store.restore_params(step)
