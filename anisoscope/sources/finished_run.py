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
from anisoscope.models.model_settings import describe_model
from anisoscope.training import train_program
from anisoscope.training.checkpoint import CheckpointReader
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, user_path
from anisoscope.utils.folder import check_corpus, digest_run
from anisoscope.utils.settings import from_dict, replace


@dataclass(frozen=True, repr=False)
class OpenRun:
    """A trained run: settings, checkpoint steps, and readers of parameters and of its text."""

    folder: pathlib.Path
    config: Config
    vocab_size: int
    steps: list[int]  # steps of the existing checkpoints
    params: Callable[[int], dict]  # step -> its saved parameters, digests checked
    read_corpus: Callable[[], Corpus]

    @functools.cached_property
    def corpus(self) -> Corpus:
        """The text of the run, read at first use; it is not downloaded."""
        return self.read_corpus()

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

        Layer 0 holds the embeddings, layer l the output of block l. Tokens that this run does not
        have are refused; inside `jax.jit`, where they are unknown, their windows are NaN.
        """
        self._check_params(params)
        tokens_BT = self._check_tokens(tokens_BT)
        with jax.default_matmul_precision("highest"):
            tree = jax.tree.map(jnp.asarray, params)
            resid_LBTD = self._model.apply(tree, tokens_BT)[1].resid_LBTD
        if not isinstance(tokens_BT, jax.core.Tracer):
            return resid_LBTD
        known_B = ((tokens_BT >= 0) & (tokens_BT < self.vocab_size)).all(axis=1)
        return jnp.where(known_B[None, :, None, None], resid_LBTD, jnp.nan)

    def _check_params(self, params: Any) -> None:
        """Raise ValueError where these are not parameters of this model."""
        mine, expected = jax.tree.map(np.shape, params), jax.tree.map(np.shape, self._shapes)
        if mine != expected:
            raise ValueError("params are not of this run's model; pass what `params(step)` returns")

    def _check_tokens(self, tokens_BT: Any) -> jax.Array:
        """Return windows of tokens as an array; raise ValueError where this run has no such."""
        shape, context = np.shape(tokens_BT), self.config.model.context
        if len(shape) != 2 or not shape[0] or not 1 <= shape[1] <= context:
            what = f"tokens have the shape {shape}"
            raise ValueError(f"{what}; pass (windows, T) with T from 1 to {context}")
        tokens_BT = jnp.asarray(tokens_BT)
        if not jnp.issubdtype(tokens_BT.dtype, jnp.integer):
            raise ValueError(f"tokens are {tokens_BT.dtype}; pass whole numbers")
        if not isinstance(tokens_BT, jax.core.Tracer):
            low, high = int(tokens_BT.min()), int(tokens_BT.max())
            if low < 0 or high >= self.vocab_size:
                what = f"tokens go from {low} to {high}"
                raise ValueError(f"{what}; this run has the tokens 0 to {self.vocab_size - 1}")
        return tokens_BT

    @functools.cached_property
    def _model(self) -> transformer.Model:
        return transformer.build(self.config.model, self.vocab_size, "float32")

    @functools.cached_property
    def _shapes(self) -> dict:
        return jax.eval_shape(self._model.init, jax.random.key(0))

    def __repr__(self) -> str:
        train, steps = self.config.train, ", ".join(map(str, self.steps))
        return (
            f"OpenRun of {self.folder}: {describe_model(self.config.model)}\n"
            f"predicts {self.config.objective}, {train.steps:,} steps, seed {train.seed}\n"
            f"checkpoints: {steps if len(steps) <= 80 else f'{steps[:40]} … {steps[-30:]}'}"
        )


def open_finished_run(
    folder: str | pathlib.Path, text: str | pathlib.Path | None = None
) -> OpenRun:
    """Open the run in a folder such as `runs/quickstart/decoder`; `text` replaces `data.path`.

    Nothing is written. Nothing outside of the folder is read before the text is used.

    Raises:
        UserError: the folder holds no run, or one that the command would refuse.
        RunError: a checkpoint is not of these settings and this text.
    """
    path = user_path(folder)
    settings: dict[str, Any] = read_json(path / "config.json", "name the folder of a trained run")
    config = from_dict(settings, Config)
    train_program.check_trainable(config)
    if not (path / "checkpoints").is_dir():
        raise UserError(
            f"{path} has no checkpoints; name the folder of a run, such as runs/quickstart/decoder"
        )
    record = check_corpus(path, None)["corpus"]
    if not isinstance(record, dict) or not {"sha256", "vocabulary"} <= record.keys():
        raise UserError(f"{path / 'environment.json'} names no text; name the folder of a run")
    store = CheckpointReader(path / "checkpoints", run=digest_run(config, record["sha256"]))
    store.check_run()

    def params(step: int) -> dict:
        if step not in store.steps():
            steps = ", ".join(map(str, store.steps()))
            raise UserError(f"step {step} has no checkpoint; {path} has those of steps {steps}")
        return store.restore_params(step)

    def read_corpus() -> Corpus:
        data = config.data if text is None else replace(config.data, {"path": str(text)})
        read = corpus.load_corpus(data, config.model.context, download=False)
        check_corpus(path, read.record())
        return read

    size = len(record["vocabulary"]) + 1
    return OpenRun(path, config, size, store.steps(), params, read_corpus)
