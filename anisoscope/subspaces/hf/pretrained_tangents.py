"""The stage `tangents` on a pretrained model: which can have it, on which windows, and its
revisions one by one.
"""

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from anisoscope.config.pretrained_config import PretrainedConfig, steps
from anisoscope.config.tangents_config import TangentsConfig, check_settings, early_among
from anisoscope.results import joined_files
from anisoscope.sources import provenance
from anisoscope.sources.hf import load_model, revision_sweep
from anisoscope.sources.hf.adapters import UNKNOWN, find_adapter, model_kind
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading_plan import place_of
from anisoscope.sources.hf.revision_sweep import Revisions
from anisoscope.subspaces import (
    gradient_inputs,
    proxies,
    tangent_stage,
    tangent_tables,
    tested_proxies,
)
from anisoscope.subspaces.hf import scored_tokens, torch_gradients, torch_matrices
from anisoscope.subspaces.proxies import Frames
from anisoscope.subspaces.tangent_limits import LEAST_EARLY
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.stop import Stop

WIDTH = "the model's width of {}"
NO_STEP = "the update of a single step needs the state of the optimizer, which no file of weights has: NaN"


class Prepared(NamedTuple):
    """What is known before a model is read."""

    source: Revisions
    windows: tuple[gradient_inputs.Windows, gradient_inputs.Windows]  # to fit and to test
    task: str

    @property
    def config(self) -> PretrainedConfig:
        return self.source.config

    @property
    def folder(self) -> pathlib.Path:
        return self.source.root / "tangents"


def task_of(config: PretrainedConfig) -> str:
    """What the model is trained to predict; UserError, one line, where no gradients can be had."""
    last = place_of(config, max(steps(config.pretrained)))
    settings = load_model.read_settings(last)
    adapter = find_adapter(model_kind(settings))
    if adapter == UNKNOWN:
        why = f"models of type {settings.model_type!r} have no entry in sources/hf/adapters.py"
        raise UserError(
            f"tangents.enabled: {why}, so it is not known what their layers are; leave it out"
        )
    if load_model.main_input(settings) != load_model.TOKENS:
        raise UserError(
            f"tangents.enabled: {config.pretrained.name} reads no text, and predicts no tokens; leave it out"
        )
    name = load_model.find_class(settings, adapter, "gguf_file" in last.given).__name__
    if (task := guards.head_task(name)) is None:
        raise UserError(
            f"tangents.enabled: {name} has no head that predicts tokens: no loss, no gradient; leave it out"
        )
    check_settings(config.tangents, settings.hidden_size, WIDTH.format(settings.hidden_size))
    return task


def prepared(source: Revisions) -> Prepared:
    """UserError, one line, where windows cannot be scored, or tables of others are there."""
    task = task_of(source.config)
    if task == guards.MASKED_TOKEN and source.windows.mask_token is None:
        name = source.config.pretrained.name
        raise UserError(
            f"tangents.enabled: the tokenizer of {name} has no mask token; leave it out"
        )
    ready = Prepared(
        source, scored_tokens.make_windows(source.windows, source.config.tangents, task), task
    )
    tangent_stage.refuse_others(ready.folder, _made_by(ready))
    return ready


def run(ready: Prepared, stop: Stop) -> None:
    """Write tangents/<step>.nc of every revision, tangents.nc and tangents_primary.csv."""
    root, config, name = ready.source.root, ready.config, ready.source.name
    if not (root / "results.nc").exists():
        raise UserError(
            f"{root / 'results.nc'} does not exist; run --stages=measure first: it checks the model"
        )
    folder.claim(root, revision_sweep.claimed(config), new=False)
    with folder.locked(root):
        reading = _Reading(ready)
        check_settings(
            config.tangents, reading.known["width"], WIDTH.format(reading.known["full_width"])
        )
        fitting = _fitting(ready, reading)
        for line in _in_words(reading.known, config):
            print(f"{name}: {line}")
        tangent_stage.fit_early(fitting, config.tangents, stop)
        tangent_stage.sweep(fitting, config.tangents, stop)
    print(f"{name}: memory at most {revision_sweep.peak() / 1e9:.1f} GB")


class _Reading:
    """Revisions read by torch, and tested by one compiled program."""

    def __init__(self, ready: Prepared):
        self.source, self.config = ready.source, ready.config
        self.to_fit, self.to_test = ready.windows
        self.fit, self.compiled = computations(self.config.tangents)
        self.known = self._known(ready.folder)
        self.basis_DD = gradient_inputs.coordinates(self.known["full_width"], self.known["width"])

    def _known(self, tables_there: pathlib.Path) -> dict[str, Any]:
        """What is found of a model once, and then stands in the tables of all its revisions, until
        weights change.
        """
        names = ("layers", "full_width", "width", "largest_ones_share", "matrices_missing")
        for there in map(tangent_stage.read_tangents, sorted(tables_there.glob("*.nc"))):
            if not provenance.is_outdated(there, self.source):
                return {name: revision_sweep.plain(there.attrs[name]) for name in names}
        loaded = self.opened(self.source.last)
        width = loaded.model.config.hidden_size
        self.basis_DD = np.eye(width, dtype=np.float32)
        one = self.to_test._replace(
            **{name: value[:1] for name, value in self.to_test._asdict().items() if "J" in name}
        )
        read_now = self._gradients(loaded, one)
        less = torch_gradients.without_ones(read_now, width)
        missing = [name for name, blocks in torch_matrices.of_blocks(loaded).items() if not blocks]
        values = (
            loaded.blocks + 1,
            width,
            width - less,
            torch_gradients.ones_share(read_now),
            ", ".join(missing) or "none",
        )
        return dict(zip(names, values, strict=True))

    def opened(self, step: int) -> load_model.PretrainedModel:
        measure = self.config.measure
        loaded = self.source.open(self.source.plan(measure.families, measure.nulls), step)
        if any(parameter.device.type == "meta" for parameter in loaded.model.parameters()):
            raise UserError(
                "tangents.enabled: weights left on the disk have no gradients; leave pretrained.device_map out"
            )
        guards.check_final_norm(loaded, self.to_test.tokens_JWT[0, 0])
        return loaded

    def cloud(self, step: int) -> np.ndarray:
        return self._states(self.opened(step))

    def test(
        self, step: int, before: int | None, frames: dict[str, Frames]
    ) -> tested_proxies.Tested:
        loaded = self.opened(step)
        cloud_NPD, read_now = self._states(loaded), self._gradients(loaded, self.to_test)
        self._check_ones(read_now, step)
        between = jax.tree.map(lambda x: np.full_like(x, np.nan), read_now.weights)
        if before is not None:
            between = torch_matrices.change(
                torch_matrices.of_blocks(self.opened(before)),
                torch_matrices.of_blocks(loaded),
                len(self.basis_DD),
            )
        del loaded  # the program needs the room
        moved = {"between": between, "step": torch_matrices.nothing(len(self.basis_DD))}
        return jax.device_get(
            self.compiled(cloud_NPD, read_now, self.to_test, self.basis_DD, frames, moved)
        )

    def _states(self, loaded: load_model.PretrainedModel) -> np.ndarray:
        return torch_gradients.states(
            loaded, self.to_fit, self.basis_DD, self.config.pretrained.batch_size
        )

    def _gradients(
        self, loaded: load_model.PretrainedModel, windows: gradient_inputs.Windows
    ) -> gradient_inputs.Read:
        return torch_gradients.gradients(
            loaded, windows, self.basis_DD, self.config.pretrained.batch_size
        )

    def _check_ones(self, read_now: gradient_inputs.Read, step: int) -> None:
        """The coordinates are those of the last revision: what is left out must be nothing here
        too.
        """
        width, less = len(self.basis_DD), self.basis_DD.shape[1] < len(self.basis_DD)
        if less and not torch_gradients.without_ones(read_now, width):
            share = torch_gradients.ones_share(read_now)
            raise UserError(
                f"step {step}: {share:.2g} of the gradient lies along the vector of ones, and of the last revision "
                f"{self.known['largest_ones_share']:.2g}: these are no revisions of one model"
            )


def _fitting(ready: Prepared, reading: _Reading) -> tangent_stage.Fitting:
    config, tangents, known = ready.config, ready.config.tangents, reading.known
    there, early = list(steps(config.pretrained)), early_of(config)
    fits = {"early": early, "previous": len(there) > 1, "untrained": 0 in there and len(there) > 1}
    cells = tangent_stage.primary(known["layers"] - 1, there, early, tangents.ranks[-1])
    return tangent_stage.Fitting(
        source=ready.source,
        where=config.pretrained.name,
        steps=there,
        early=early,
        fits=tuple(fit for fit in tested_proxies.FITS if fit == "here" or fits.get(fit)),
        layers=known["layers"],
        width=known["width"],
        cloud=reading.cloud,
        fit=reading.fit,
        test=reading.test,
        attributes=attributes(
            ready, known | {"early_steps": json.dumps(early), "primary": json.dumps(cells)}
        ),
        cells=cells,
    )


def early_of(config: PretrainedConfig) -> list[int]:
    """The revisions of the first part of the steps, without step 0; none where they are too few, or
    all there are.
    """
    there = list(steps(config.pretrained))
    early = early_among(there, max(there), config.tangents)
    return early if len(early) >= LEAST_EARLY and early[-1] < max(there) else []


def attributes(ready: Prepared, further: dict[str, Any]) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
    source, config, tangents = ready.source, ready.config, ready.config.tangents
    measured = joined_files.read_table(source.root / "results.nc").attrs
    sampled = tangent_tables.sampled(tangents)
    about = revision_sweep.attributes(config, source.corpus, source.windows, source.name)
    of_measured = {*source.windows.about} - {"tokens_per_byte"}  # other windows
    return {name: value for name, value in about.items() if name not in of_measured} | {
        "model": measured["model"],
        "steps": max(steps(config.pretrained)),
        "provenance": f"{measured['provenance']}; {sampled['sample']}",
        "input": scored_tokens.IN_WORDS[ready.task],
        "positions": "scored ones: those that the loss counts",
        "types": "token",
        "frequency": "of tokens in the validation split that is read",
        "batches": 1,
        **sampled,
        "single_step": NO_STEP,
        "made_by": _made_by(ready),
        **further,
    }


def _made_by(ready: Prepared) -> str:
    """What tables must have in common to be joined."""
    tokens = b"".join(np.ascontiguousarray(one.tokens_JWT).tobytes() for one in ready.windows)
    words = json.loads(tangent_tables.made_by(ready.config.tangents, ready.source.corpus.sha256))
    return json.dumps(words | {"tokens_sha256": hashlib.sha256(tokens).hexdigest()})


def _in_words(known: dict[str, Any], config: PretrainedConfig) -> Iterator[str]:
    """What a reader should know before the long part begins."""
    tangents, layers, width = config.tangents, known["layers"], known["full_width"]
    removed = "removed" if known["width"] < width else "kept"
    yield f"vector of ones: {removed}, {known['largest_ones_share']:.1g} of the gradient lies along it at most"
    if known["matrices_missing"] != "none":
        yield f"matrices: not known, or not of this width, and NaN: {known['matrices_missing']}"
    if not early_of(config):
        last = int(tangents.early_fraction * max(steps(config.pretrained)))
        where = (
            f"in steps 1 to {last}, and a later one"
            if last
            else "of a training, named by pretrained.revisions"
        )
        yield (
            f"no early subspaces: they need {LEAST_EARLY} revisions {where}; primary cells are of those fitted at the "
            "revision itself, on other windows"
        )
    rows = 4 * 6 * layers * tangents.points * width
    yield (
        f"memory: rows of all layers {rows / 1e9:.2f} GB, and of each matrix {width} rows; beside them weights, their "
        f"gradients, and passes over {config.pretrained.batch_size} windows"
    )


@functools.cache
def computations(tangents: TangentsConfig) -> tuple[Callable, Callable]:
    """To fit, and to test: one program each for all revisions."""
    works = (
        functools.partial(work, tangents=tangents) for work in (proxies.fit, tested_proxies.test)
    )
    return tuple(jax.jit(jax.default_matmul_precision("highest")(work)) for work in works)
