"""Sweep over the revisions of a pretrained model (a source of sources/sweep.py).

Letters: G batches of windows.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.data import corpus as texts
from anisoscope.data.corpus import Corpus
from anisoscope.results import joined_files
from anisoscope.results.replicates_table import UNTRAINED
from anisoscope.results.step_files import STREAM
from anisoscope.sources import hook_points, sweep
from anisoscope.sources.hf import load_model, pretrained_weights, revision
from anisoscope.sources.hf.adapters import UNKNOWN, Adapter, find_adapter, model_kind
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.media import media_inputs
from anisoscope.sources.hf.pretrained_weights import Place
from anisoscope.sources.hf.reading import guards, inside_names
from anisoscope.sources.hf.reading.token_windows import (
    Windows,
    make_windows,
    validation_text,
    window_length,
)
from anisoscope.sources.hf.reading_plan import Plan, find_revision, unmeasurable
from anisoscope.sources.hf.residuals import Residuals, clear, compared_with, previous_step
from anisoscope.sources.source import Families, Reader, Source, Target, check_tables
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

Tokens = Callable[[np.ndarray], list[str]]  # token ids -> names of the tokens

RESIDUALS = "measurements/residuals"  # temporary streams for comparisons
# Settings that may change at any time: revisions may be added, and batches resized.
FREE = {"pretrained.revisions": (), "pretrained.batch_size": 1, "pretrained.device_map": None}
FREE |= {"pretrained.max_bits_per_byte": None}
# attributes of each revision that the joined table also has
FOUND_OF_STREAM = ("residual_stream", "attention", "logit_lens", "noise_floor")
FOUND_OF_STREAM += ("bits_per_byte", "bits_bound", "bits_of")
FOUND = ("revision", "weights_sha256", "weights_file", "weights_type", "computed_in", "not_read")
FOUND += (*FOUND_OF_STREAM, "clamped", "torch", "transformers")
STATES = {"blocks": "outputs of blocks", "reported": "hidden states as transformers reports them"}


def measure_revisions(source: "Revisions", stop: Stop) -> None:
    """Measure every revision, and join the tables."""
    check_tables(source.targets, source.made_by)
    folder.claim(source.root, fixed_settings(source.config), new=True)
    with folder.locked(source.root):
        folder.record_environment(source.root, source.corpus.record())
        clear(source.root / RESIDUALS)  # left by a session that was killed
        sweep.sweep(source, stop)
    print(f"{source.name}: memory at most {peak_memory() / 1e9:.1f} GB")


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    import resource  # missing on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def fixed_settings(config: PretrainedConfig) -> PretrainedConfig:
    """Return the settings that may not change in a folder."""
    return replace(config, FREE)


def open_revisions(
    config: PretrainedConfig, root: pathlib.Path, title: str, corpus: Corpus | None = None
) -> "Revisions":
    """Open text, windows and tokenizer of all revisions, before any weights are read.

    Raises:
        UserError: these settings cannot be measured on this model.
    """
    revisions = revision_steps(config.pretrained)
    last = find_revision(config, max(revisions))
    rate, reads_text = 1, True
    if not last.is_gguf:  # reading its settings takes long
        settings = load_model.read_settings(last)
        kind = model_kind(settings)
        adapter = find_adapter(kind)
        name = load_model.find_class(settings, adapter, False).__name__
        inside_names.check_hook_points(adapter, name, config.measure.hook_points)
        config = drop_unmeasurable(config, adapter, kind, name, title)
        reads_text = load_model.main_input(settings) == load_model.TOKENS
        rate = getattr(settings, adapter.rate) if adapter.rate else 1
    if reads_text:
        corpus, windows, names, measurable = open_text(config, last, rate, corpus)
    else:
        corpus, windows = media_inputs.open_media(config, last)
        names, measurable = windows.words, media_inputs.drop_unmeasurable(config, windows)
    print(f"corpus: {corpus.name}, from {corpus.origin}")
    families = measurable.measure.families
    if dropped := [family for family in config.measure.families if family not in families]:
        print(f"{title}: not measured, since maps change between stages: {', '.join(dropped)}")
    nulls = measurable.measure.nulls
    if 0 not in revisions:  # revision 0 is the untrained network
        nulls = tuple(null for null in nulls if null != UNTRAINED)
    measure = dataclasses.replace(measurable.measure, nulls=nulls)
    config = replace(config, {"window": measurable.window})
    return Revisions(config, measure, corpus, windows, names, root, title)


def open_text(
    config: PretrainedConfig, last: Place, rate: int, corpus: Corpus | None
) -> tuple[Corpus, Windows, Tokens, PretrainedConfig]:
    """Cut the text into windows for all revisions, with the tokenizer of the last revision.

    Returns:
        Text, windows, the function that names tokens, and the settings with the window's length.
    """
    tokenizer = load_model.read_tokenizer(last)
    corpus = corpus or texts.load(config.data, config.window)
    text, special = validation_text(corpus), config.special_tokens
    if config.characters is not None:
        length = window_length(text, tokenizer, config.characters, special)
        config = replace(config, {"window": length})
    windows = make_windows(text, tokenizer, config.window, special, config.measure, rate)
    return corpus, windows, lambda ids: tokenizer.convert_ids_to_tokens(ids.tolist()), config


def drop_unmeasurable(
    config: PretrainedConfig, adapter: Adapter, kind: str, name: str, title: str
) -> PretrainedConfig:
    """Drop families that a model type and class does not have, and print why."""
    reasons, families = unmeasurable(adapter, kind, name), config.measure.families
    measurable = tuple(family for family in families if family not in reasons)
    if not measurable:
        reason = reasons[families[0]]
        raise UserError(f"{reason}: {', '.join(families)} cannot be measured; name other families")
    if adapter == UNKNOWN:
        print(
            f"{title}: models of type {kind!r} have no entry in sources/hf/adapters.py: layers are "
            "its hidden_states, the last of which may have gone through a final norm"
        )
    for family in families:
        if family in reasons:
            print(f"{title}: {reasons[family]}: family {family} is left out")
    return replace(config, {"measure.families": measurable})


@dataclasses.dataclass(frozen=True)
class Revisions(Source):
    """Revisions as a source; the last comes first, to show whether tokenizer and weights match."""

    config: PretrainedConfig  # as set by the user
    measure: MeasureConfig  # without what cannot be measured
    corpus: Any
    windows: Any
    names: Tokens
    root: pathlib.Path
    name: str
    digests: dict[int, str] = dataclasses.field(default_factory=dict)  # sha256 of weights, by step
    read_now: set[int] = dataclasses.field(default_factory=set)  # steps read by this process

    @functools.cached_property
    def steps(self) -> list[int]:
        revisions = revision_steps(self.config.pretrained)
        return list(dict.fromkeys((max(revisions), *revisions)))

    @property
    def last(self) -> int:
        return self.steps[0]

    @functools.cached_property
    def made_by(self) -> dict[str, Any]:
        """Settings that decide which vectors form a cloud; only tables that share them are joined."""
        measure, names = self.config.measure, ["points", "batches", "folds", "seed"]
        names += ["projected_head"] * ("projection" in measure.families)
        tokens = self.windows.probe.tokens_GWT.tobytes()
        return {f"measure.{name}": getattr(measure, name) for name in names} | {
            "corpus_sha256": self.corpus.sha256,
            "tokens_sha256": hashlib.sha256(tokens).hexdigest(),
            "positions": self.windows.positions,
            "hidden_states": self.config.hidden_states,
        }

    @property
    def run_settings(self) -> dict[str, Any]:
        """Settings that differ in tables of another model."""
        return {"pretrained.name": self.config.pretrained.name}

    def stored(self) -> set[int]:
        return {*self.steps}

    def digest(self, step: int) -> str | None:
        """Return the sha256 of the weights if they are local or were read; no hub is asked."""
        if step not in self.steps:
            return None
        place = find_revision(self.config, step)
        if place.local:
            return pretrained_weights.digest_weights(place)
        return self.digests[step] if step in self.read_now else None

    def open(self, plan: Plan, step: int) -> PretrainedModel:
        """Load the revision of a step; refuse weights that another step has."""
        loaded = revision.open_model(plan, find_revision(self.config, step))
        digest = loaded.about["weights_sha256"]
        guards.check_weights_differ(step, digest, self.digests)
        self.digests[step] = digest
        self.read_now.add(step)
        return loaded

    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        """Find tables whose weights, or whose reference weights, have changed."""
        local = [step for step in tables if find_revision(self.config, step).local]
        new = {step for step in local if self.digest(step) != tables[step].attrs["weights_sha256"]}
        again = dict.fromkeys(sorted(new), "its weights have changed")
        if target.name != STREAM:
            return again
        if "comparison" in target.families and len(self.steps) > 1:
            for step, table in tables.items():
                others, now = (
                    {previous_step(self.steps, step), self.last},
                    compared_with(self.steps, step),
                )
                changed = table.attrs.get("compared_with") != now or others & new
                if "cka_layers" in table and changed:
                    again.setdefault(step, "its reference revisions have changed")
        for step in tables.keys() - again.keys():
            self.digests[step] = tables[step].attrs["weights_sha256"]
        return again

    @contextlib.contextmanager
    def reader(self, families: dict[str, Families]) -> Iterator[Reader]:
        reader = RevisionReader(self, {name: self.plan(own) for name, own in families.items()})
        try:
            yield reader.read
        finally:
            clear(self.root / RESIDUALS)

    def plan(self, families: Families) -> Plan:
        measure = dataclasses.replace(self.measure, families=families)
        return Plan(dataclasses.replace(self.config, measure=measure), self.windows, self.name)

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        """Return attributes of the joined table: the findings of every revision, in JSON."""
        last = tables[self.last].attrs
        if target.is_hook_point:
            run = joined_files.read_table(self.root / "results.nc").attrs
            about = {name: to_python(value) for name, value in run.items()
                     if name not in (*FOUND_OF_STREAM, "revisions")}  # fmt: skip
            own = {name: last[name] for name in ("sum", "noise_floor") if name in last}
            return about | hook_points.attributes(self.name, target.name) | own
        found = {
            step: {name: to_python(table.attrs[name]) for name in FOUND if name in table.attrs}
            for step, table in tables.items()
        }
        about = attributes(self.config, self.corpus, self.windows, self.name)
        about |= {"model": last["model"], "steps": self.last}
        about |= found[self.last] | {"revisions": json.dumps(found)}
        return about | {"provenance": describe_provenance(self.config, about)}


class RevisionReader:
    """Read and measure revisions one by one, by plans of targets."""

    def __init__(self, source: Revisions, plans: dict[str, Plan]):
        self.source, self.plans = source, plans
        self.first = plans.get(STREAM) or next(iter(plans.values()))
        compare = STREAM in plans and "comparison" in plans[STREAM].config.measure.families
        self.residuals = Residuals(
            source.root / RESIDUALS, sorted(source.steps), compare, self.read_residuals
        )
        self.about = attributes(source.config, source.corpus, source.windows, source.name)
        self.sum = ""  # how closely the added outputs sum to the stream

    def read_residuals(self, step: int) -> list[np.ndarray]:
        place = find_revision(self.source.config, step)
        return revision.read_residuals(self.first, revision.open_model(self.first, place))

    def read(self, step: int, targets: Sequence[Target]) -> Iterator[tuple[Target, xr.Dataset]]:
        """Yield the table of each target."""
        source, last = self.source, step == self.source.last
        loaded = source.open(self.first, step)
        if any(target.is_hook_point for target in targets):  # before the long part begins
            previous, tokens_T = self.sum, source.windows.probe.tokens_GWT[0, 0]
            self.sum = inside_names.check_sum(loaded, tokens_T, source.config.pretrained.clamp)
            if self.sum != previous:
                print(f"{source.name}: {self.sum}")
        for target in targets:
            plan = self.plans[target.name]
            if target.is_hook_point:
                about = self.about | revision.as_attributes(loaded.about) | {"sum": self.sum}
                about |= {"model": revision.describe_model(loaded, source.config, source.windows)}
                about |= hook_points.attributes(source.name, target.name)
                table = revision.measure_hook_point(plan, loaded, step, last, target.name, about)
            else:
                table = revision.measure_stream(
                    plan, loaded, step, last, self.residuals, self.about
                )
            yield target, table
        clear(self.residuals.folder, {step, source.last})


def attributes(
    config: PretrainedConfig, corpus: Corpus, windows: Windows, name: str
) -> dict[str, Any]:
    """Return the attributes of every table: the origin of its numbers."""
    return {
        "run": name,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "pretrained": config.pretrained.name,
        "points": config.measure.points,
        "batches": config.measure.batches,
        "folds": config.measure.folds,
        "config": json.dumps(dataclasses.asdict(config)),
        **windows.about,
    }


def describe_provenance(config: PretrainedConfig, about: dict[str, Any]) -> str:
    """Describe where numbers come from, as figures do, with semicolons between facts."""
    facts = [about["corpus"], "/".join(pathlib.Path(config.pretrained.name).parts[-2:])]
    facts += [*about["model"].split(", "), STATES[config.hidden_states]]
    facts += [f"computed in {about['computed_in']}"]
    if config.pretrained.clamp:
        facts += [f"coordinates clamped at {config.pretrained.clamp:g}"]
    if not isinstance(bits := about["bits_per_byte"], str):
        facts += [f"{bits:.2f} bits per byte"]
    return "; ".join([*facts, f"weights {about['weights_sha256'][:12]}"])


def to_python(value: Any) -> Any:
    """Convert a NumPy number from a table to Python, for JSON."""
    return value.item() if hasattr(value, "item") else value
