"""The revisions of a pretrained model as a source: their weights guarded, their windows read by
torch.

Letters: G probe batches.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

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
from anisoscope.sources.hf.adapters import Adapter, find_adapter, has_scores, model_kind
from anisoscope.sources.hf.media import media_inputs
from anisoscope.sources.hf.model_attributes import (
    GUARDED,
    OF_STREAM,
    attributes,
    in_words,
    peak,
    plain,
)
from anisoscope.sources.hf.reading import guards, inside_names, logits
from anisoscope.sources.hf.reading.token_windows import (
    Windows,
    make_windows,
    validation_text,
    window_length,
)
from anisoscope.sources.hf.reading_plan import OF_HEADS, Plan, place_of
from anisoscope.sources.hf.residuals import Residuals, before, clear, compared_with
from anisoscope.sources.hf.revision import Tokens
from anisoscope.sources.source import Families, Reader, Source, Target, check_tables
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

# of revisions that others are compared with, while a sweep runs
RESIDUALS = "measurements/residuals"
# Settings that may change at any time.
FREE = {"pretrained.revisions": (), "pretrained.batch_size": 1, "pretrained.device_map": None}
FREE |= {"pretrained.most_bits": None}


def measure_revisions(source: "Revisions", stop: Stop) -> None:
    """Measure every revision, and join the tables (sources/sweep.py)."""
    check_tables(source.targets, source.made_by)
    folder.claim(source.root, claimed(source.config), new=True)
    with folder.locked(source.root):
        folder.record_environment(source.root, source.corpus.record())
        clear(source.root / RESIDUALS)  # of a session that was killed
        sweep.sweep(source, stop)
    print(f"{source.name}: memory at most {peak() / 1e9:.1f} GB")


def open_revisions(
    config: PretrainedConfig, root: pathlib.Path, title: str, corpus: Corpus | None = None
) -> "Revisions":
    """UserError, one line, where it cannot be measured so. The text is read where none is given."""
    revisions = revision_steps(config.pretrained)
    last = place_of(config, max(revisions))
    takes, rate = load_model.TOKENS, 1
    if "gguf_file" not in last.given:  # whose settings take long to read
        settings = load_model.read_settings(last)
        adapter = find_adapter(model_kind(settings))
        inside_names.check_hook_points(
            adapter,
            (settings.architectures or [settings.model_type])[0],
            config.measure.hook_points,
        )
        takes, rate = (
            load_model.main_input(settings),
            getattr(settings, adapter.rate) if adapter.rate else 1,
        )
        config = drop_unknown_attention(config, model_kind(settings), title)
        config = drop_missing_readout(
            config, adapter, load_model.find_class(settings, adapter, False).__name__, title
        )
    read = (
        opened_text(config, last, rate, corpus)
        if takes == load_model.TOKENS
        else opened_files(config, last)
    )
    corpus, windows, names, fitted = read
    print(f"corpus: {corpus.name}, from {corpus.origin}")
    if left_out := [
        name for name in config.measure.families if name not in fitted.measure.families
    ]:
        print(
            f"{title}: not measured, since maps change from stage to stage: {', '.join(left_out)}"
        )
    config = replace(config, {"window": fitted.window})
    there = 0 in revisions  # the untrained network
    nulls = tuple(null for null in fitted.measure.nulls if null != UNTRAINED or there)
    return Revisions(
        config,
        dataclasses.replace(fitted.measure, nulls=nulls),
        corpus,
        windows,
        names,
        root,
        title,
    )


def opened_text(
    config: PretrainedConfig, last: pretrained_weights.Place, rate: int, corpus: Corpus | None
) -> tuple[Corpus, Windows, Tokens, PretrainedConfig]:
    """The text, its windows, and what tokens are called: by the tokenizer of the last revision, for
    all.

    And what is to be measured of them.
    """
    tokenizer = load_model.read_tokenizer(last)
    corpus = corpus or texts.load(config.data, config.window)
    text = validation_text(corpus)
    if config.characters is not None:
        config = replace(
            config,
            {"window": window_length(text, tokenizer, config.characters, config.special_tokens)},
        )
    windows = make_windows(
        text, tokenizer, config.window, config.special_tokens, config.measure, rate
    )
    return corpus, windows, lambda ids: tokenizer.convert_ids_to_tokens(ids.tolist()), config


def opened_files(
    config: PretrainedConfig, last: pretrained_weights.Place
) -> tuple[media_inputs.Source, media_inputs.Windows, Tokens, PretrainedConfig]:
    """The same of pictures or sound, and what positions are called."""
    source, windows = media_inputs.open_media(config, last)
    return source, windows, windows.words, media_inputs.drop_unmeasurable(config, windows)


@dataclasses.dataclass(frozen=True)
class Revisions(Source):
    """The last revision comes first: it shows whether tokenizer and weights fit."""

    config: PretrainedConfig  # as asked for
    measure: MeasureConfig  # what can be measured of that
    corpus: Any
    windows: Any
    names: Tokens
    root: pathlib.Path
    name: str
    # of weights, read now or by tables
    digests: dict[int, str] = dataclasses.field(default_factory=dict)
    # steps whose weights this process has read
    read_now: set[int] = dataclasses.field(default_factory=set)

    @functools.cached_property
    def steps(self) -> list[int]:
        revisions = revision_steps(self.config.pretrained)
        return list(dict.fromkeys((max(revisions), *revisions)))

    @property
    def last(self) -> int:
        return self.steps[0]

    @functools.cached_property
    def made_by(self) -> dict[str, Any]:
        """What decides which vectors make up a cloud: tables of others are not joined."""
        measure = self.config.measure
        names = [
            "points",
            "batches",
            "folds",
            "seed",
            *["projected_head"] * ("projection" in measure.families),
        ]
        settings = {f"measure.{name}": getattr(measure, name) for name in names}
        tokens = hashlib.sha256(self.windows.probe.tokens_GWT.tobytes()).hexdigest()
        clouds = {
            "corpus_sha256": self.corpus.sha256,
            "tokens_sha256": tokens,
            "positions": self.windows.positions,
        }
        return settings | clouds | {"hidden_states": self.config.hidden_states}

    @property
    def of_run(self) -> dict[str, Any]:
        """What a table of another model has otherwise."""
        return {"pretrained.name": self.config.pretrained.name}

    def stored(self) -> set[int]:
        return {*self.steps}

    def digest(self, step: int) -> str | None:
        """Of the weights' files, as far as they are here: a hub is not asked."""
        if step not in self.steps:
            return None
        place = place_of(self.config, step)
        if place.local:
            return pretrained_weights.digest_weights(place)
        return self.digests[step] if step in self.read_now else None

    def open(self, plan: Plan, step: int) -> load_model.PretrainedModel:
        """The revision of a step, which must not have the weights of another."""
        loaded = revision.open_model(plan, place_of(self.config, step))
        guards.check_weights_differ(step, loaded.about["weights_sha256"], self.digests)
        self.digests[step] = loaded.about["weights_sha256"]
        self.read_now.add(step)
        return loaded

    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        """Local weights have changed (a hub is not asked), or those that a revision is compared
        with.
        """
        local = [step for step in tables if place_of(self.config, step).local]
        new = {step for step in local if self.digest(step) != tables[step].attrs["weights_sha256"]}
        again = dict.fromkeys(sorted(new), "its weights have changed")
        if target.name != STREAM:
            return again
        if "comparison" in target.families and len(self.steps) > 1:
            for step, table in tables.items():
                others, now = {before(self.steps, step), self.last}, compared_with(self.steps, step)
                if "cka_layers" in table and (
                    table.attrs.get("compared_with") != now or others & new
                ):
                    again.setdefault(
                        step, "it is compared with others, or others that have changed"
                    )
        self.digests.update(
            {step: tables[step].attrs["weights_sha256"] for step in tables.keys() - again.keys()}
        )
        return again

    @contextlib.contextmanager
    def reader(self, families: dict[str, Families]) -> Iterator[Reader]:
        plans = {name: self.plan(own) for name, own in families.items()}
        first = plans.get(STREAM) or next(iter(plans.values()))
        compared = STREAM in plans and "comparison" in plans[STREAM].config.measure.families
        beside = Residuals(
            self.root / RESIDUALS,
            sorted(self.steps),
            compared,
            lambda step: revision.read_residuals(
                first, revision.open_model(first, place_of(self.config, step))
            ),
        )
        about = attributes(self.config, self.corpus, self.windows, self.name)
        print_once = functools.cache(print)

        def table(
            target: Target, loaded: load_model.PretrainedModel, step: int, sums: str
        ) -> xr.Dataset:
            plan, last = plans[target.name], step == self.last
            if target.name == STREAM:
                return revision.measure_stream(plan, loaded, step, last, beside, about)
            own = about | revision.as_attributes(loaded.about)
            own |= {"model": revision.describe(loaded, self.config, self.windows)}
            own |= {"sum": sums} | hook_points.attributes(self.name, target.name)
            return revision.measure_hook_point(plan, loaded, step, last, target.name, own)

        def read(step: int, asked: Sequence[Target]) -> Iterator[tuple[Target, xr.Dataset]]:
            loaded, sums = self.open(first, step), ""
            if any(target.is_hook_point for target in asked):  # told before the long part begins
                sums = inside_names.check_sum(
                    loaded, self.windows.probe.tokens_GWT[0, 0], self.config.pretrained.clamp
                )
                print_once(f"{self.name}: {sums}")
            for target in asked:
                yield target, table(target, loaded, step, sums)
            clear(beside.folder, {step, self.last})

        try:
            yield read
        finally:
            clear(beside.folder)

    def plan(self, families: Families) -> Plan:
        measure = dataclasses.replace(self.measure, families=families)
        return Plan(dataclasses.replace(self.config, measure=measure), self.windows, self.name)

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        """What was found of every revision, by step, in JSON; of a hook point what the run says,
        and which it is.
        """
        if target.is_hook_point:
            run, last = (
                joined_files.read_table(self.root / "results.nc").attrs,
                tables[self.last].attrs,
            )
            about = {name: plain(value) for name, value in run.items() if name not in OF_STREAM}
            own = {name: last[name] for name in ("sum", "noise_floor") if name in last}
            return about | hook_points.attributes(self.name, target.name) | own
        about = attributes(self.config, self.corpus, self.windows, self.name)
        of_step = {
            step: {name: plain(table.attrs[name]) for name in GUARDED if name in table.attrs}
            for step, table in tables.items()
        }
        about |= {"model": tables[self.last].attrs["model"], "steps": self.last}
        about |= of_step[self.last] | {"revisions": json.dumps(of_step)}
        return about | {"provenance": in_words(self.config, about)}


def claimed(config: PretrainedConfig) -> PretrainedConfig:
    """What makes a folder its own. Of one name revisions may be added, and read in other portions,
    at any time.
    """
    return replace(config, FREE)


def drop_unknown_attention(config: PretrainedConfig, kind: str, name: str) -> PretrainedConfig:
    """Where queries and keys do not say what attention is, what reads them is left out, and a line
    says so.
    """
    adapter = find_adapter(kind)
    if has_scores(adapter):
        return config
    families = tuple(family for family in config.measure.families if family not in OF_HEADS)
    named = [family for family in config.measure.families if family in OF_HEADS]
    left_out = f"families {' and '.join(named) or 'of queries and keys'} are"
    left_out = f"family {named[0]} is" if len(named) == 1 else left_out
    why = f"models of type {kind!r} have no entry in sources/hf/adapters.py"
    layers = "layers are its hidden_states, the last of which may have gone through a final norm; "
    if adapter.mixed:
        why, layers = f"of models of type {kind!r} {adapter.mixed}", ""
    if not families:
        raise UserError(
            f"{why}: {' and '.join(named)} cannot be measured; name other measure.families"
        )
    if adapter.mixed and families == config.measure.families:
        return config
    print(f"{name}: {why}: {layers}{left_out} left out")
    return replace(config, {"measure.families": families})


def drop_missing_readout(
    config: PretrainedConfig, adapter: Adapter, named: str, name: str
) -> PretrainedConfig:
    """Where a class of this name makes no logits of its last layer, readout is left out, and a line
    says so.
    """
    why = logits.missing_head(adapter, named)
    if why is None or logits.FAMILY not in config.measure.families:
        return config
    families = tuple(family for family in config.measure.families if family != logits.FAMILY)
    if not families:
        raise UserError(f"{why}: {logits.FAMILY} cannot be measured; name other measure.families")
    print(f"{name}: {why}: family {logits.FAMILY} is left out")
    return replace(config, {"measure.families": families})
