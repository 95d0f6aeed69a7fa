"""The stage `tangents` on a pretrained model: which can have it, on which windows, and its revisions one by one."""

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from anisoscope.config.pretrained import PretrainedConfig, steps
from anisoscope.config.tangents import TangentsConfig, check_settings, early_among
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources import made_from
from anisoscope.measurement.sources.hub import load, sweep
from anisoscope.measurement.sources.hub.adapters import UNKNOWN, adapter_of, kind_of
from anisoscope.measurement.sources.hub.reading import guards
from anisoscope.measurement.sources.hub.revision import Plan, named, opened, place_of
from anisoscope.measurement.tables import files
from anisoscope.tangents import inputs, proxies, stage, tables, tested
from anisoscope.tangents.hub import gradients, matrices, scored
from anisoscope.tangents.limits import LEAST_EARLY
from anisoscope.tangents.proxies import Frames
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.stop import Stop

WIDTH = "the model's width of {}"
NO_STEP = "the update of a single step needs the state of the optimizer, which no file of weights has: NaN"


class Prepared(NamedTuple):
    """What is known before a model is read."""

    plan: Plan
    corpus: Corpus
    windows: tuple[inputs.Windows, inputs.Windows]  # to fit and to test
    task: str
    root: pathlib.Path

    @property
    def folder(self) -> pathlib.Path:
        return self.root / "tangents"


def prepared(config: PretrainedConfig, root: pathlib.Path, title: str) -> Prepared:
    """UserError, one line, where no gradients can be had, or tables of others are there."""
    revisions = steps(config.pretrained)
    last = load.place_of(config.pretrained.name, revisions[max(revisions)])
    settings = load.settings_of(last)
    task = _task(config, settings, "gguf_file" in last.given)
    check_settings(config.tangents, settings.hidden_size, WIDTH.format(settings.hidden_size))
    corpus, windows, _, config = sweep.opened_text(config, last, 1, None)
    if task == guards.MASKED_TOKENS and windows.mask_token is None:
        raise UserError(f"tangents.enabled: the tokenizer of {config.pretrained.name} has no mask token; leave it out")
    found = Prepared(
        Plan(config, windows, title), corpus, scored.make_windows(windows, config.tangents, task), task, root
    )
    stage.refuse_others(found.folder, _made_by(found))
    return found


def _task(config: PretrainedConfig, settings: Any, gguf: bool) -> str:
    """What the model is trained to predict; UserError where it has no loss of tokens, or its layers are not known."""
    adapter = adapter_of(kind_of(settings))
    if adapter == UNKNOWN:
        why = f"models of type {settings.model_type!r} have no entry in measurement/sources/hub/adapters.py"
        raise UserError(f"tangents.enabled: {why}, so it is not known what their layers are; leave it out")
    if load.takes(settings) != load.TOKENS:
        raise UserError(
            f"tangents.enabled: {config.pretrained.name} reads no text, and predicts no tokens; leave it out"
        )
    name = load.class_of(settings, adapter, gguf).__name__
    if (task := guards.predicts(name)) is None:
        raise UserError(
            f"tangents.enabled: {name} has no head that predicts tokens: no loss, no gradient; leave it out"
        )
    return task


def run(found: Prepared, stop: Stop) -> None:
    """Write tangents/<step>.nc of every revision, tangents.nc and tangents_primary.csv."""
    root, config, name = found.root, found.plan.config, found.plan.name
    if not (root / "results.nc").exists():
        raise UserError(f"{root / 'results.nc'} does not exist; run --stages=measure first: it checks the model")
    folder.claim(root, sweep.claimed(config), new=False)
    with folder.locked(root):
        reading = _Reading(found)
        check_settings(config.tangents, reading.known["width"], WIDTH.format(reading.known["full_width"]))
        source = _source(found, reading)
        for line in _told(reading.known, config):
            print(f"{name}: {line}")
        stage.fit_early(source, config.tangents, stop)
        stage.sweep(source, config.tangents, stop)
    print(f"{name}: memory at most {sweep.peak() / 1e9:.1f} GB")


class _Reading:
    """Revisions read by torch, and tested by one compiled program."""

    def __init__(self, found: Prepared):
        self.plan, self.config, self.tangents = found.plan, found.plan.config, found.plan.config.tangents
        self.to_fit, self.to_test = found.windows
        self.fetched: set[int] = set()  # steps whose files are here now
        self.fit, self.compiled = computations(self.tangents)
        self.known = self._known(found.folder)
        self.basis_DD = inputs.coordinates(self.known["full_width"], self.known["width"])

    def _known(self, tables_there: pathlib.Path) -> dict[str, Any]:
        """What is found of a model once, and then stands in the tables of all its revisions, until weights change."""
        names = ("layers", "full_width", "width", "largest_ones_share", "matrices_missing")
        for there in map(stage.read, sorted(tables_there.glob("*.nc"))):
            if not made_from.is_outdated(there, self):
                return {name: sweep.plain(there.attrs[name]) for name in names}
        loaded = self.opened(max(steps(self.config.pretrained)))
        width = loaded.model.config.hidden_size
        self.basis_DD = np.eye(width, dtype=np.float32)
        one = self.to_test._replace(
            **{name: value[:1] for name, value in self.to_test._asdict().items() if "J" in name}
        )
        read_now = self._gradients(loaded, one)
        less = gradients.without_ones(read_now, width)
        missing = [name for name, blocks in matrices.found(loaded).items() if not blocks]
        found = loaded.blocks + 1, width, width - less, gradients.ones_share(read_now), ", ".join(missing) or "none"
        return dict(zip(names, found, strict=True))

    def opened(self, step: int) -> load.Loaded:
        loaded = opened(self.plan, place_of(self.config, step))
        if any(parameter.device.type == "meta" for parameter in loaded.model.parameters()):
            raise UserError(
                "tangents.enabled: weights left on the disk have no gradients; leave pretrained.device_map out"
            )
        guards.final_norm(loaded, self.to_test.tokens_JWT[0, 0])
        self.fetched.add(step)
        return loaded

    def digest(self, step: int) -> str | None:
        """Of the weights' files, as far as they are here: a hub is not asked."""
        place = place_of(self.config, step)
        return load.digest_of(place) if place.local or step in self.fetched else None

    def cloud(self, step: int) -> np.ndarray:
        return self._states(self.opened(step))

    def test(self, step: int, before: int | None, frames: dict[str, Frames]) -> tested.Tested:
        loaded = self.opened(step)
        cloud_NPD, read_now = self._states(loaded), self._gradients(loaded, self.to_test)
        self._check_ones(read_now, step)
        between = jax.tree.map(lambda x: np.full_like(x, np.nan), read_now.weights)
        if before is not None:
            between = matrices.change(matrices.found(self.opened(before)), matrices.found(loaded), len(self.basis_DD))
        del loaded  # the program needs the room
        moved = {"between": between, "step": matrices.nothing(len(self.basis_DD))}
        return jax.device_get(self.compiled(cloud_NPD, read_now, self.to_test, self.basis_DD, frames, moved))

    def _states(self, loaded: load.Loaded) -> np.ndarray:
        return gradients.states(loaded, self.to_fit, self.basis_DD, self.config.pretrained.batch_size)

    def _gradients(self, loaded: load.Loaded, windows: inputs.Windows) -> inputs.Read:
        return gradients.gradients(loaded, windows, self.basis_DD, self.config.pretrained.batch_size)

    def _check_ones(self, read_now: inputs.Read, step: int) -> None:
        """The coordinates are those of the last revision: what is left out must be nothing here too."""
        width, less = len(self.basis_DD), self.basis_DD.shape[1] < len(self.basis_DD)
        if less and not gradients.without_ones(read_now, width):
            share = gradients.ones_share(read_now)
            raise UserError(
                f"step {step}: {share:.2g} of the gradient lies along the vector of ones, and of the last revision "
                f"{self.known['largest_ones_share']:.2g}: these are no revisions of one model"
            )


def _source(found: Prepared, reading: _Reading) -> stage.Source:
    config, tangents, known = found.plan.config, found.plan.config.tangents, reading.known
    revisions, early = list(steps(config.pretrained)), early_of(config)
    fits = {"early": early, "previous": len(revisions) > 1, "untrained": 0 in revisions and len(revisions) > 1}
    cells = stage.primary(known["layers"] - 1, revisions, early, tangents.ranks[-1])
    return stage.Source(
        name=found.plan.name,
        folder=found.folder,
        where=config.pretrained.name,
        steps=revisions,
        early=early,
        fits=tuple(fit for fit in tested.FITS if fit == "here" or fits.get(fit)),
        layers=known["layers"],
        width=known["width"],
        there=lambda: {*revisions},
        digest=reading.digest,
        cloud=reading.cloud,
        fit=reading.fit,
        test=reading.test,
        attributes=attributes(found, known | {"early_steps": json.dumps(early), "primary": json.dumps(cells)}),
        run=named(config),
        cells=cells,
    )


def early_of(config: PretrainedConfig) -> list[int]:
    """The revisions of the first part of the steps, without step 0; none where they are too few, or all there are."""
    revisions = list(steps(config.pretrained))
    found = early_among(revisions, max(revisions), config.tangents)
    return found if len(found) >= LEAST_EARLY and found[-1] < max(revisions) else []


def attributes(found: Prepared, further: dict[str, Any]) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
    config, tangents = found.plan.config, found.plan.config.tangents
    measured = files.read(found.root / "results.nc").attrs
    sampled = tables.sampled(tangents)
    about = sweep.attributes(config, found.corpus, found.plan.windows, found.plan.name)
    of_measured = {*found.plan.windows.about} - {"tokens_per_byte"}  # other windows
    return {name: value for name, value in about.items() if name not in of_measured} | {
        "model": measured["model"],
        "steps": max(steps(config.pretrained)),
        "provenance": f"{measured['provenance']}; {sampled['sample']}",
        "input": scored.IN_WORDS[found.task],
        "positions": "scored ones: those that the loss counts",
        "types": "token",
        "frequency": "of tokens in the validation split that is read",
        "batches": 1,
        **sampled,
        "single_step": NO_STEP,
        "made_by": _made_by(found),
        **further,
    }


def _made_by(found: Prepared) -> str:
    """What tables must have in common to be joined."""
    tokens = b"".join(np.ascontiguousarray(one.tokens_JWT).tobytes() for one in found.windows)
    words = json.loads(tables.made_by(found.plan.config.tangents, found.corpus.sha256))
    return json.dumps(words | {"tokens_sha256": hashlib.sha256(tokens).hexdigest()})


def _told(known: dict[str, Any], config: PretrainedConfig) -> Iterator[str]:
    """What a reader should know before the long part begins."""
    tangents, layers, width = config.tangents, known["layers"], known["full_width"]
    removed = "removed" if known["width"] < width else "kept"
    yield f"vector of ones: {removed}, {known['largest_ones_share']:.1g} of the gradient lies along it at most"
    if known["matrices_missing"] != "none":
        yield f"matrices: not known, or not of this width, and NaN: {known['matrices_missing']}"
    if not early_of(config):
        last = int(tangents.early_fraction * max(steps(config.pretrained)))
        where = f"in steps 1 to {last}, and a later one" if last else "of a training, named by pretrained.revisions"
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
    works = (functools.partial(work, tangents=tangents) for work in (proxies.fit, tested.test))
    return tuple(jax.jit(jax.default_matmul_precision("highest")(work)) for work in works)
