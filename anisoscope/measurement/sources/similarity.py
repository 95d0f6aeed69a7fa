"""How alike two runs are on the same text: every layer of one beside every layer of the other.

Points are the same characters of the same windows, those that both runs are measured on. Where their texts or positions
differ, two clouds have no points in common, and the comparison is refused.
"""

import functools
import hashlib
import json
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jax import Array

from anisoscope.config.measure import MeasureConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement import nulls
from anisoscope.measurement.families import comparison
from anisoscope.measurement.intervals import summarise, within
from anisoscope.measurement.nulls import PERMUTED
from anisoscope.measurement.quantity import MEASURED
from anisoscope.measurement.sources.activations import keys
from anisoscope.measurement.sources.probe import POSITION_SETS, Probe
from anisoscope.measurement.sources.program import probe_of
from anisoscope.measurement.sources.run import OpenRun, open_run
from anisoscope.measurement.tables import files
from anisoscope.measurement.tables.excess import NULL, about_excess, excess_name, excess_of
from anisoscope.measurement.tables.summary import STATISTICS
from anisoscope.models.description import description
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import bar

Values = dict[str, dict[str, np.ndarray]]  # of the clouds as they are and of permuted ones, by quantity
SETTINGS = ("points", "batches", "folds", "seed", "weighting")  # of measure: which vectors make up a cloud


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityConfig:
    runs: tuple[str, ...] = ()  # two folders, with a step after @ where it is not the last


class Pair(NamedTuple):
    runs: tuple[OpenRun, OpenRun]
    steps: tuple[int, int]
    labels: tuple[str, str]
    probe: Probe

    @property
    def corpus(self) -> Corpus:
        return self.runs[0].corpus


def compare(first: str, second: str) -> xr.Dataset:
    """The table of two runs, as runs/a and runs/b@256: cka, cka_unbiased and overlap of (layer, other_layer)."""
    return table(opened(first, second))


def opened(first: str, second: str) -> Pair:
    """Both runs; UserError, one line, where they cannot be compared."""
    found = [_at_step(word) for word in (first, second)]
    runs, steps = zip(*found, strict=True)
    probes = [probe_of(run.config, run.corpus) for run in runs]
    texts = [_text(run, probe) for run, probe in zip(runs, probes, strict=True)]
    different = [
        f"{name}={str(here)[:12]} and {str(there)[:12]}"
        for (name, here), there in zip(texts[0].items(), texts[1].values(), strict=True)
        if here != there
    ]
    if different:
        advice = "take two runs of one text, one context and the same measure.* settings"
        raise UserError(
            f"--similarity: {first} and {second} have no points in common: {'; '.join(different)}; {advice}"
        )
    return Pair(runs, steps, labels_of((first, second), steps), probes[0])


def labels_of(words: tuple[str, str], steps: tuple[int, int]) -> tuple[str, str]:
    """What the two are called: by their folders, by the steps where these are the same, or by the whole path."""
    names = [pathlib.Path(word.partition("@")[0]).resolve().name for word in words]
    plain = names[0] != names[1]
    labels = tuple(name if plain else f"{name}@{step}" for name, step in zip(names, steps, strict=True))
    if labels[0] == labels[1]:  # of one name in two folders, or the same twice
        labels = tuple(pathlib.Path(word).as_posix().strip("./").replace("/", "_") for word in words)
    return labels


def of_others(word: str) -> bool:
    """Whether a folder holds a model that others trained."""
    path = pathlib.Path(word.partition("@")[0]) / "config.json"
    return "pretrained" in read_json(path, "name the folder of a trained run")


def _at_step(word: str) -> tuple[OpenRun, int]:
    """A run, and the step named after it, or its last one."""
    path = word.partition("@")[0]
    run = open_run(path)
    if not run.steps:
        raise UserError(f"--similarity={word}: {path} has no checkpoint; run --stages=train first")
    return run, step_of(word, run.steps)


def step_of(word: str, steps: list[int]) -> int:
    """The step named after a run, or its last one."""
    path, at, step = word.partition("@")
    if at and (not (step.isascii() and step.isdecimal()) or int(step) not in steps):
        raise UserError(f"--similarity={word}: {path} has no checkpoint of step {step!r}; it has {steps}")
    return int(step) if at else steps[-1]


def _text(run: OpenRun, probe: Probe) -> dict[str, Any]:
    """What has to be the same for point i of one to be point i of the other."""
    settings = {f"measure.{name}": getattr(run.config.measure, name) for name in SETTINGS}
    tokens = hashlib.sha256(probe.tokens_GWT.tobytes()).hexdigest()
    digests = {"corpus_sha256": run.corpus.sha256, "tokens_sha256": tokens}
    return {"model.context": run.config.model.context} | settings | digests


def table(pair: Pair) -> xr.Dataset:
    return summarised(_values(pair), _about(pair))


def summarised(values: list[Values], about: dict[str, Any]) -> xr.Dataset:
    """Means over batches, 95 % intervals, and what is left when the permuted null model is taken off.

    Of every batch, arrays (positions, layer, other layer, R) of the measured clouds and of the null model.
    """
    variables = {}
    for name, quantity in comparison.ACROSS.items():
        own, null = (
            np.moveaxis(np.stack([one[cloud][name] for one in values]), -1, 1) for cloud in (MEASURED, PERMUTED)
        )
        value = np.stack(within(summarise(own, quantity.resampling), *quantity.range))
        excess = np.stack(summarise(own, quantity.resampling, null))[None]
        words = {"long_name": quantity.long_name, "formula": quantity.formula, "source": quantity.source, "units": "1"}
        words |= {"resampling": quantity.resampling}
        dims = ("statistic", "positions", "layer", "other_layer")
        variables |= {name: (dims, value, words)}
        variables |= {excess_name(name): ((NULL, *dims), excess, about_excess(name, words))}
    sizes = next(iter(variables.values()))[1].shape
    labels = {NULL: [PERMUTED], "statistic": list(STATISTICS), "positions": list(POSITION_SETS)}
    labels |= {"layer": np.arange(sizes[2]), "other_layer": np.arange(sizes[3])}
    return xr.Dataset(variables, labels, about)


def _about(pair: Pair) -> dict[str, Any]:
    """What the table says of both runs: `layer` is of the first, `other_layer` of the second."""
    first = pair.runs[0]
    about = {"corpus": first.corpus.name} | _text(first, pair.probe)
    for place, run, step, label in zip(("first", "second"), pair.runs, pair.steps, pair.labels, strict=True):
        said = f"{description(run.config.model)}; step {step:,}"
        about |= {place: label, f"{place}_step": step, f"{place}_model": said}
    return about | {"permutations": nulls.PERMUTATIONS}


def _values(pair: Pair) -> list[Values]:
    """Of every batch, arrays (positions, layer, other layer, R)."""
    measure, probe = pair.runs[0].config.measure, pair.probe
    program = _program(measure)
    read = [jax.jit(run.vectors) for run in pair.runs]
    params = [run.params(step) for run, step in zip(pair.runs, pair.steps, strict=True)]
    found = []
    for batch, key in bar(list(enumerate(keys(measure))), " beside ".join(pair.labels), "batch"):
        vectors = [of(given, probe.tokens_GWT[batch]) for of, given in zip(read, params, strict=True)]
        sets = [jax.device_get(program(*vectors, picks_GP[batch], key)) for picks_GP in probe.picks_SGP]
        found.append(jax.tree.map(lambda *of_sets: np.stack(of_sets), *sets))
    return found


@functools.cache
def _program(measure: MeasureConfig) -> Callable[..., dict]:
    """Compiled once for all batches and sets of positions."""

    @jax.default_matmul_precision("highest")
    def across(a_NWTD: Array, b_MWTE: Array, picks_P: Array, key: Array) -> dict:
        a_NXD, b_MXE = (z.reshape(z.shape[0], -1, z.shape[-1]) for z in (a_NWTD, b_MWTE))
        permuted = functools.partial(nulls.permuted_clouds, a_NWTD, picks_P, key)
        return comparison.across(a_NXD[:, picks_P], b_MXE[:, picks_P], measure.folds, permuted)

    return jax.jit(across)


def write(found: xr.Dataset, labels: tuple[str, str], root: pathlib.Path) -> None:
    """similarity.nc and similarity.csv: a row for each pair of layers and quantity."""
    found.attrs["config"] = json.dumps({"runs": labels})
    files.write(found, root / "similarity.nc")
    files.write_csv(rows(found), root / "similarity.csv")
    print(f"{' beside '.join(labels)}: {root / 'similarity.nc'}, {root / 'similarity.csv'}")


def rows(found: xr.Dataset) -> pd.DataFrame:
    """mean, std, low, high of the value; the same of its excess over the permuted null model."""
    parts = []
    for name in comparison.ACROSS:
        columns = [
            values.sel(statistic=statistic, drop=True).to_series().rename(f"{before}{statistic}")
            for values, before in ((found[name], ""), (excess_of(found, name, PERMUTED), "excess_permuted_"))
            for statistic in STATISTICS
        ]
        parts.append(pd.concat(columns, axis=1).reset_index().assign(metric=name))
    return pd.concat(parts, ignore_index=True).assign(first=found.attrs["first"], second=found.attrs["second"])
