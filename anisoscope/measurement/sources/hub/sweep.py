"""Measure every revision of a pretrained model with one compiled program; what is measured already is left alone."""

import dataclasses
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.pretrained import PretrainedConfig, steps
from anisoscope.data import corpus as texts
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources.hub import hook_points, load, points
from anisoscope.measurement.sources.hub.adapters import UNKNOWN, adapter_of, kind_of
from anisoscope.measurement.sources.hub.reading import guards, inside
from anisoscope.measurement.sources.hub.reading.windows import Windows, make_windows, text_of, tokens_of
from anisoscope.measurement.sources.hub.residuals import Residuals, before, compared_with
from anisoscope.measurement.sources.hub.revision import (
    OF_HEADS,
    Plan,
    changed,
    named,
    opened,
    place_of,
    residuals_of,
    table,
)
from anisoscope.measurement.sources.hub.senses import inputs
from anisoscope.measurement.tables import join, leading_vectors, measurements, raw
from anisoscope.measurement.tables.measurements import Standing
from anisoscope.measurement.tables.raw import UNTRAINED
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

Words = Callable[[np.ndarray], list[str]]
GUARDED = (  # of each revision, in the table of all
    *("revision", "weights_sha256", "weights_file", "weights_type", "computed_in", "not_read", "residual_stream"),
    *("attention", "bits_per_byte", "bits_bound", "bits_of", "noise_floor", "clamped", "torch", "transformers"),
)
STATES = {"blocks": "outputs of blocks", "reported": "hidden states as transformers reports them"}


def run(config: PretrainedConfig, root: pathlib.Path, title: str, stop: Stop, corpus: Corpus | None = None) -> None:
    """Write measurements/<step>.nc for every revision, then the tables of all of them (tables/join).

    The text is read where none is given.
    """
    revisions = steps(config.pretrained)
    last = load.place_of(config.pretrained.name, revisions[max(revisions)])
    takes, rate = load.TOKENS, 1
    if "gguf_file" not in last.given:  # whose settings take long to read
        settings = load.settings_of(last)
        adapter = adapter_of(kind_of(settings))
        inside.known(adapter, (settings.architectures or [settings.model_type])[0], config.measure.hook_points)
        takes, rate = load.takes(settings), getattr(settings, adapter.rate) if adapter.rate else 1
        config = known_of(config, kind_of(settings), title)
    given = opened_text(config, last, rate, corpus) if takes == load.TOKENS else opened_files(config, last)
    corpus, windows, words, wanted = given
    config = replace(config, {"window": wanted.window})
    print(f"corpus: {corpus.name}, from {corpus.origin}")
    if left_out := [name for name in config.measure.families if name not in wanted.measure.families]:
        print(f"{title}: not measured, since maps change from stage to stage: {', '.join(left_out)}")
    wanted = replace(wanted, {"measure.nulls": nulls_of(wanted)})
    made = made_by(config, corpus, windows)
    found = measurements.plan(
        root / "measurements", list(revisions), wanted.measure.families, wanted.measure.nulls, made, named(config)
    )
    plan = Plan(wanted, windows, title)
    hook_points.check(config, root, made)
    if wanted.measure.points_table:
        points.check(plan, root, made)
    folder.claim(root, claimed(config), new=True)
    with folder.locked(root):
        folder.record_environment(root, corpus.record())
        about = attributes(config, corpus, windows, title)
        measured = measure(wanted, windows, root / "measurements", found, about, made, title, stop)
        whole = {step: measurements.read(root / "measurements" / f"{step}.nc") for step in revisions}
        about |= {"model": whole[max(revisions)].attrs["model"], "steps": max(revisions), **told(whole)}
        about["provenance"] = provenance(config, about)
        join.write(root, whole, wanted.measure.families, wanted.measure.nulls, about)
        leading_vectors.write(root, whole, words)
        if wanted.measure.hook_points:
            hook_points.measure(plan, root, about, made, stop)
        if wanted.measure.points_table:
            points.measure(plan, root, words, attributes(config, corpus, windows, title), made, stop)
    print(f"{title}: {len(whole)} measured ({measured} now): {root / 'results.nc'}, {root / 'results.csv'}")
    print(f"{title}: memory at most {peak() / 1e9:.1f} GB")


def claimed(config: PretrainedConfig) -> PretrainedConfig:
    """What makes a folder its own. Of one name revisions may be added, and read in other portions, at any time."""
    free = {"pretrained.revisions": (), "pretrained.batch_size": 1, "pretrained.device_map": None}
    return replace(config, free | {"pretrained.most_bits": None})


def opened_text(
    config: PretrainedConfig, last: load.Place, rate: int, corpus: Corpus | None
) -> tuple[Corpus, Windows, Words, PretrainedConfig]:
    """The text, its windows, and what tokens are called: by the tokenizer of the last revision, for all.

    And what is to be measured of them.
    """
    tokenizer = load.tokenizer_of(last)
    corpus = corpus or texts.load(config.data, config.window)
    text = text_of(corpus)
    if config.characters is not None:
        config = replace(config, {"window": tokens_of(text, tokenizer, config.characters, config.special_tokens)})
    windows = make_windows(text, tokenizer, config.window, config.special_tokens, config.measure, rate)
    return corpus, windows, lambda ids: tokenizer.convert_ids_to_tokens(ids.tolist()), config


def opened_files(
    config: PretrainedConfig, last: load.Place
) -> tuple[inputs.Source, inputs.Windows, Words, PretrainedConfig]:
    """The same of pictures or sound, and what positions are called."""
    source, windows = inputs.opened(config, last)
    return source, windows, windows.words, inputs.fitted(config, windows)


def measure(
    config: PretrainedConfig,
    windows: Windows,
    tables: pathlib.Path,
    found: dict[int, Standing],
    about: dict[str, Any],
    made: dict[str, Any],
    name: str,
    stop: Stop,
) -> int:
    """The last revision first: of it is asked whether tokenizer and weights fit. How many were measured."""
    settings, revisions = config.measure, steps(config.pretrained)
    for step, why in outdated(config, found).items():
        print(f"{name}: measured again, since {why}: step {step}")
        found[step] = measurements.nothing(settings.families, settings.nulls)
    todo = [step for step in dict.fromkeys((max(revisions), *revisions)) if found[step].missing]
    missed = {quantity for step in todo for quantity in found[step].missing}
    plan = Plan(replace(config, {"measure.families": raw.families_of(missed, settings.families)}), windows, name)

    compared = "comparison" in plan.config.measure.families
    beside = Residuals(
        tables / "residuals",
        list(revisions),
        compared,
        lambda step: residuals_of(plan, opened(plan, place_of(config, step))),
    )
    beside.close()  # what a session that was killed has left may be of other windows
    digests = {step: one.table.attrs["weights_sha256"] for step, one in found.items() if one.table is not None}
    try:
        for step in bar(todo, f"{name}: measure", "revision"):
            stop.check(f"{name}: stopped before measuring step {step}")
            loaded = opened(plan, place_of(config, step))
            guards.same_weights(step, loaded.about["weights_sha256"], digests)
            digests[step] = loaded.about["weights_sha256"]
            new = table(plan, loaded, step, step == max(revisions), beside, about | {"made_by": json.dumps(made)})
            measurements.keep(new, step, found[step], tables)
            beside.close(needed={step, max(revisions)})
    finally:
        beside.close()
    return len(todo)


def known_of(config: PretrainedConfig, model_type: str, name: str) -> PretrainedConfig:
    """Of a class without an entry queries and keys are not known: what reads them is left out, and a line says so."""
    if adapter_of(model_type) != UNKNOWN:
        return config
    families = tuple(family for family in config.measure.families if family not in OF_HEADS)
    unknown = f"models of type {model_type!r} have no entry in measurement/sources/hub/adapters.py"
    if not families:
        raise UserError(f"{unknown}: {' and '.join(OF_HEADS)} cannot be measured; name other measure.families")
    print(
        f"{name}: {unknown}: layers are its hidden_states, the last of which may have gone through a final norm; "
        f"families {' and '.join(OF_HEADS)} are left out"
    )
    return replace(config, {"measure.families": families})


def nulls_of(config: PretrainedConfig) -> tuple[str, ...]:
    """Those that can be had: of the untrained network only where a revision of step 0 is named."""
    there = 0 in steps(config.pretrained)
    return tuple(null for null in config.measure.nulls if null != UNTRAINED or there)


def outdated(config: PretrainedConfig, found: dict[int, Standing]) -> dict[int, str]:
    """Tables that hold no longer, and why: local weights have changed (a hub is not asked), or those compared with."""
    revisions, new = steps(config.pretrained), set(changed(config, found))
    tables = {step: one.table for step, one in found.items() if one.table is not None}
    again = dict.fromkeys(sorted(new), "its weights have changed")
    if "comparison" in config.measure.families and len(revisions) > 1:
        for step, found_there in tables.items():
            others, now = {before(list(revisions), step), max(revisions)}, compared_with(list(revisions), step)
            if "cka_layers" in found_there and (found_there.attrs.get("compared_with") != now or others & new):
                again.setdefault(step, "it is compared with others, or others that have changed")
    return again


def made_by(config: PretrainedConfig, corpus: Corpus, windows: Windows) -> dict[str, Any]:
    """What decides which vectors make up a cloud: tables of others are not joined."""
    names = ["points", "batches", "folds", "seed", *["projected_head"] * ("projection" in config.measure.families)]
    settings = {f"measure.{name}": getattr(config.measure, name) for name in names}
    tokens = hashlib.sha256(windows.probe.tokens_GWT.tobytes()).hexdigest()
    clouds = {"corpus_sha256": corpus.sha256, "tokens_sha256": tokens, "positions": windows.positions}
    return settings | clouds | {"hidden_states": config.hidden_states}


def attributes(config: PretrainedConfig, corpus: Corpus, windows: Windows, name: str) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
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


def told(whole: dict[int, xr.Dataset]) -> dict[str, str]:
    """What was found of each revision, by step, in JSON; and of the last one by itself."""
    of_step = {
        step: {name: plain(table.attrs[name]) for name in GUARDED if name in table.attrs}
        for step, table in whole.items()
    }
    return of_step[max(whole)] | {"revisions": json.dumps(of_step)}


def plain(value: Any) -> Any:
    """A number read from a table is NumPy's."""
    return value.item() if hasattr(value, "item") else value


def peak() -> int:
    """Bytes of memory that this process has needed; macOS counts them, Linux kilobytes."""
    import resource  # of systems that have it

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def provenance(config: PretrainedConfig, about: dict[str, Any]) -> str:
    """In the words of a figure, with semicolons between facts."""
    bits = about["bits_per_byte"]
    return "; ".join(
        (
            about["corpus"],
            "/".join(pathlib.Path(config.pretrained.name).parts[-2:]),
            *about["model"].split(", "),
            STATES[config.hidden_states],
            f"computed in {about['computed_in']}",
            *([f"coordinates clamped at {config.pretrained.clamp:g}"] if config.pretrained.clamp else []),
            *([f"{bits:.2f} bits a byte"] if not isinstance(bits, str) else []),
            f"weights {about['weights_sha256'][:12]}",
        )
    )
