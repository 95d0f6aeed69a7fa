"""Sweep over the revisions of a pretrained model (a source of sources/sweep.py). G are batches."""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps, short_name
from anisoscope.data import corpus as texts
from anisoscope.data.corpus import Corpus
from anisoscope.results.replicates_table import UNTRAINED
from anisoscope.sources import sweep
from anisoscope.sources.evaluation_windows import add_massive_set
from anisoscope.sources.hf import load_model, media, pretrained_weights, revision
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.pretrained_weights import WeightLocation
from anisoscope.sources.hf.residuals import Residuals, clear, compared_steps
from anisoscope.sources.hf.revision import Plan, unmeasurable_families
from anisoscope.sources.hf.token_windows import (
    InputWindows,
    cut_token_windows,
    set_window,
    validation_text,
)
from anisoscope.sources.sweep import Families, Source, Tables, Target, check_tables
from anisoscope.utils import files, folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace

# Settings that may change at any time: revisions may be added, and batches resized.
FREE = {"pretrained.revisions": (), "pretrained.batch_size": 1, "pretrained.device_map": None}
FREE |= {"pretrained.max_bits_per_byte": None}
# attributes of each revision that the joined table also has
FOUND = ("revision", "weights_sha256", "model_sha256", "weights_file", "weights_type")
FOUND += ("computed_in", "not_read", "layers", "layer_0")
FOUND += ("residual_stream", "attention", "logit_lens", "noise_floor")
FOUND += ("bits_per_byte", "bits_bound", "bits_of", "clamped", "torch", "transformers")
STATES = {"blocks": "outputs of blocks", "reported": "hidden states as transformers reports them"}


def measure_revisions(
    source: "Revisions", stop: Stop, finish: Callable[[], None], chosen: slice | None = None
) -> None:
    """Measure every revision, join the tables, and call `finish`; or measure those `chosen`."""
    check_tables(source)
    folder.claim_folder(source.root, replace(source.config, FREE), new=True)
    with folder.locked_folder(source.root, chosen is not None):
        folder.check_claim(source.root, replace(source.config, FREE), False)  # of another process
        if chosen:
            sweep.measure_steps(source, stop, chosen)
        else:
            folder.record_environment(source.root, source.corpus.record())
            sweep.sweep(source, stop, finish)


def last_location(config: PretrainedConfig) -> WeightLocation:
    """Find the weights of the last revision."""
    revisions = revision_steps(config.pretrained)
    return pretrained_weights.find_weights(config.pretrained.name, revisions[max(revisions)])


def open_revisions(
    config: PretrainedConfig, root: pathlib.Path, title: str, corpus: Corpus | None = None
) -> "Revisions":
    """Open text, windows and tokenizer of all revisions, before any weights are read."""
    last, joined, reads_text = last_location(config), 1, True
    if not last.is_gguf:  # reading its settings takes long
        settings = load_model.read_settings(last)
        config = drop_unmeasurable(config, settings, title)
        reads_text = load_model.main_input(settings) == load_model.TOKENS
        joined = load_model.tokens_per_position(settings)
    if reads_text:
        corpus = corpus or texts.load_corpus(config.data, config.window)
        tokenizer, text = load_model.read_tokenizer(last), validation_text(corpus)
        config = set_window(text, tokenizer, config)
        windows = cut_token_windows(text, tokenizer, config, joined)
    else:
        corpus, windows = media.open_media(config, last)
        config = replace(config, {"window": windows.context})
    print(f"corpus: {corpus.name}, from {corpus.origin}")
    nulls = config.measure.nulls
    if 0 not in revision_steps(config.pretrained):  # revision 0 is the untrained network
        nulls = tuple(null for null in nulls if null != UNTRAINED)
    measure = dataclasses.replace(config.measure, nulls=nulls)
    return Revisions(config, measure, corpus, windows, root, title)


def drop_unmeasurable(config: PretrainedConfig, settings: Any, title: str) -> PretrainedConfig:
    """Drop families that a model does not have, and print why."""
    class_name = load_model.find_class(settings).__name__
    families = config.measure.families
    reasons = unmeasurable_families(settings, class_name, config.layers)
    measurable = tuple(family for family in families if family not in reasons)
    if not measurable:
        reason = reasons[families[0]]
        raise UserError(f"{reason}: {', '.join(families)} cannot be measured; name other families")
    for family in families:
        if family in reasons:
            print(f"{title}: {reasons[family]}: family {family} is left out")
    return replace(config, {"measure.families": measurable})


@dataclasses.dataclass(frozen=True)
class Revisions(Source):
    """Revisions as a source; the last comes first, to show whether tokenizer and weights match."""

    config: PretrainedConfig  # without families that cannot be measured
    measure: MeasureConfig  # without null models that cannot be measured
    corpus: Any
    windows: InputWindows
    root: pathlib.Path
    name: str
    # sha256 of weights by step, as read now or by the table
    digests: dict[int, str] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def streams(self) -> pathlib.Path:
        """The folder of this process for residual streams, which comparisons read."""
        return files.temporary_path(self.root / "measurements" / "residuals")

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
        tokens = self.windows.probe.tokens_GWT.tobytes()
        return {f"measure.{name}": getattr(measure, name) for name in names} | {
            "corpus_sha256": self.corpus.sha256,
            "tokens_sha256": hashlib.sha256(tokens).hexdigest(),
            "positions": add_massive_set(self.windows.positions, measure),
            "hidden_states": self.config.hidden_states,
        }

    @property
    def run_settings(self) -> dict[str, Any]:
        """Settings that differ in tables of another model."""
        return {"pretrained.name": self.config.pretrained.name}

    def stored(self) -> set[int]:
        return {*self.steps}

    def location(self, step: int) -> WeightLocation:
        weights = self.config.pretrained
        return pretrained_weights.find_weights(weights.name, revision_steps(weights)[step])

    def digest(self, step: int) -> str | None:
        """Return the sha256 of weights and settings, if known; no hub is asked."""
        if step not in self.steps:
            return None
        location = self.location(step)
        if location.local:
            weights = pretrained_weights.digest_weights(location)
            return pretrained_weights.digest_model(location, weights)
        return self.digests.get(step)

    def open(self, plan: Plan, step: int) -> PretrainedModel:
        """Load the revision of a step; refuse weights that another step has, or its table has not."""
        loaded = revision.open_revision(plan, step)
        digest = loaded.attributes["weights_sha256"]
        if self.digests.get(step, digest) != digest:
            what = f"the weights of step {step} are not those of its table in {self.root}"
            raise UserError(f"{what}; name their revision, or measure in another folder")
        revision.check_distinct(self.digests | {step: digest})
        self.digests[step] = digest
        return loaded

    def outdated(self, target: Target, tables: Tables) -> dict[int, str]:
        """Find tables whose model, or whose reference model, has changed."""
        local = [step for step in tables if self.location(step).local]
        then = {step: tables[step].attrs.get("model_sha256") for step in local}
        new = {step for step, digest in then.items() if self.digest(step) != digest}
        again = dict.fromkeys(sorted(new), "its weights or its config.json have changed")
        if "comparison" in target.families and len(self.steps) > 1:
            for step, table in tables.items():
                others = compared_steps(self.steps, step)
                changed = table.attrs.get("compared_with") != str(others)
                if "cka_layers" in table and (changed or sweep.is_outdated(table, self)):
                    again.setdefault(step, "its reference revisions have changed")
        for step in tables.keys() - again.keys():
            self.digests[step] = tables[step].attrs["weights_sha256"]
        return again

    def measure_step(
        self, step: int, families: dict[Target, Families]
    ) -> Iterator[tuple[Target, xr.Dataset]]:
        ((target, names),) = families.items()  # the residual stream alone
        plan = self.make_plan(names)

        def read(other: int) -> list[np.ndarray]:
            return revision.read_residuals(plan, self.open(plan, other))

        compared = read if "comparison" in names else None
        residuals = Residuals(sorted(self.steps), self.streams, compared)
        loaded, last = self.open(plan, step), step == self.last
        table = revision.measure_revision(plan, loaded, step, last, residuals)
        others = compared_steps(self.steps, step) if residuals.compare else ()
        digests = {other: self.digest(other) for other in sorted({step, *others} - {-1})}
        yield target, table.assign_attrs(checkpoints=json.dumps(digests))
        clear(self.streams, {step, self.last})

    def close(self) -> None:
        clear(self.streams)

    def make_plan(self, families: Families) -> Plan:
        measure = dataclasses.replace(self.measure, families=families)
        return Plan(self.config, measure, self.windows, self.corpus, self.name)

    def attributes(self, target: Target, tables: Tables) -> dict[str, Any]:
        """Return attributes of the joined table: the findings of every revision, in JSON."""
        revision.check_distinct(
            {step: table.attrs["weights_sha256"] for step, table in tables.items()}
        )
        found = {
            step: {name: to_python(table.attrs[name]) for name in FOUND if name in table.attrs}
            for step, table in tables.items()
        }
        attributes = self.make_plan(self.measure.families).attributes
        attributes |= {"model": tables[self.last].attrs["model"], "steps": self.last}
        attributes |= found[self.last] | {"revisions": json.dumps(found)}
        return attributes | {"provenance": describe_provenance(self.config, attributes)}


def describe_provenance(config: PretrainedConfig, attributes: dict[str, Any]) -> str:
    """Describe where numbers come from, as figures do, with semicolons between facts."""
    facts = [attributes["corpus"], short_name(config.pretrained.name)]
    facts += [*attributes["model"].split(", "), STATES[config.hidden_states]]
    facts += [f"computed in {attributes['computed_in']}"]
    if config.pretrained.clamp:
        facts += [f"coordinates clamped at {config.pretrained.clamp:g}"]
    if not isinstance(bits := attributes["bits_per_byte"], str):
        facts += [f"{bits:.2f} bits per byte"]
    return "; ".join([*facts, f"weights {attributes['weights_sha256'][:12]}"])


def to_python(value: Any) -> Any:
    """Convert a NumPy number from a table to Python, for JSON."""
    return value.item() if hasattr(value, "item") else value
