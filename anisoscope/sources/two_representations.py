"""How alike two models are on the same text: every layer of one beside every layer of the other.

Points are the same places of the text for both. Where their texts or settings differ, two clouds
have no points in common, and the comparison is refused.

Letters: M layers of the second model.
"""

import functools
import json
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement import null_models
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.intervals import clip, estimate
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import MEASURED
from anisoscope.results import joined_files
from anisoscope.results.excess import NULL, about_excess, excess_name, excess_of
from anisoscope.results.summary import STATISTICS
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.progress import bar
from anisoscope.utils.settings import format_differences

# of the clouds as they are and of permuted ones, by quantity
Values = dict[str, dict[str, np.ndarray]]
# of measure: which vectors make up a cloud
SETTINGS = ("points", "batches", "folds", "seed", "weighting", "masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityConfig:
    runs: tuple[str, ...] = ()  # two folders, with a step after @ where it is not the last


class Clouds(NamedTuple):
    """Of one batch and set of positions: the same P points of both, and of the first model
    permuted, K times.
    """

    first_NPD: np.ndarray
    second_MPE: np.ndarray
    null_KNPD: np.ndarray


class Pair(NamedTuple):
    labels: tuple[str, str]
    measure: MeasureConfig
    corpus: Corpus
    clouds: Callable[[int], list[Clouds]]  # of a batch, for each set of positions
    # what the table says of both, once all batches are read
    attributes: Callable[[], dict[str, Any]]


def refuse_different(words: tuple[str, str], texts: list[dict[str, Any]], advice: str) -> None:
    """Raise UserError where what has to be the same of both, {name: value}, is not."""
    first, second = ({name: str(value)[:12] for name, value in text.items()} for text in texts)
    if different := format_differences(first, second, whose=("of the first", "of the second")):
        both = " and ".join(words)
        raise UserError(f"--similarity: {both} have no points in common: {different}; {advice}")


def labels_of(words: tuple[str, str], steps: tuple[int, int]) -> tuple[str, str]:
    """What the two are called: by their folders, by the steps where these are the same, or by the
    whole path.
    """
    names = [pathlib.Path(word.partition("@")[0]).resolve().name for word in words]
    plain = names[0] != names[1]
    labels = tuple(
        name if plain else f"{name}@{step}" for name, step in zip(names, steps, strict=True)
    )
    if labels[0] == labels[1]:  # of one name in two folders, or the same twice
        labels = tuple(
            pathlib.Path(word).as_posix().strip("./").replace("/", "_") for word in words
        )
    return labels


def is_pretrained(word: str) -> bool:
    """Whether a folder holds a pretrained model."""
    path = pathlib.Path(word.partition("@")[0]) / "config.json"
    return "pretrained" in read_json(path, "name the folder of a trained run")


def step_of(word: str, steps: list[int]) -> int:
    """The step named after a run, or its last one."""
    path, at, step = word.partition("@")
    if not steps:
        raise UserError(f"--similarity={word}: {path} has no checkpoint; run --stages=train first")
    if at and (not (step.isascii() and step.isdecimal()) or int(step) not in steps):
        raise UserError(
            f"--similarity={word}: {path} has no checkpoint of step {step!r}; it has {steps}"
        )
    return int(step) if at else steps[-1]


def table(pair: Pair) -> xr.Dataset:
    """cka, cka_unbiased and overlap of (layer, other_layer), with intervals and the excess over the
    null model.
    """
    program, values = _program(pair.measure.folds), []
    for batch in bar(range(pair.measure.batches), " beside ".join(pair.labels), "batch"):
        sets = [jax.device_get(program(*clouds)) for clouds in pair.clouds(batch)]
        values.append(jax.tree.map(lambda *of_sets: np.stack(of_sets), *sets))
    return summarised(values, pair.attributes() | {"permutations": null_models.PERMUTATIONS})


@functools.cache
def _program(folds: int) -> Callable[..., Values]:
    """Compiled once for all batches and sets of positions."""

    @jax.default_matmul_precision("highest")
    def across(first_NPD: jax.Array, second_MPE: jax.Array, null_KNPD: jax.Array) -> Values:
        return comparison_family.across(
            first_NPD, second_MPE, folds, lambda number: null_KNPD[number]
        )

    return jax.jit(across)


def summarised(values: list[Values], about: dict[str, Any]) -> xr.Dataset:
    """Means over batches, 95 % intervals, and what is left when the permuted null model is taken
    off.

    Of every batch, arrays (positions, layer, other layer, R) of the measured clouds and of the null
    model.
    """
    variables = {}
    for name, quantity in comparison_family.ACROSS.items():
        own, null = (
            np.moveaxis(np.stack([one[cloud][name] for one in values]), -1, 1)
            for cloud in (MEASURED, PERMUTED)
        )
        value = np.stack(clip(estimate(own, quantity.resampling), *quantity.range))
        excess = np.stack(estimate(own, quantity.resampling, null))[None]
        words = {
            "long_name": quantity.long_name,
            "formula": quantity.formula,
            "source": quantity.source,
            "units": "1",
        }
        words |= {"resampling": quantity.resampling}
        dims = ("statistic", "positions", "layer", "other_layer")
        variables |= {name: (dims, value, words)}
        variables |= {excess_name(name): ((NULL, *dims), excess, about_excess(name, words))}
    sizes = next(iter(variables.values()))[1].shape
    labels = {NULL: [PERMUTED], "statistic": list(STATISTICS), "positions": list(POSITION_SETS)}
    labels |= {"layer": np.arange(sizes[2]), "other_layer": np.arange(sizes[3])}
    return xr.Dataset(variables, labels, about)


def write(table: xr.Dataset, labels: tuple[str, str], root: pathlib.Path) -> None:
    """similarity.nc and similarity.csv: a row for each pair of layers and quantity."""
    table.attrs["config"] = json.dumps({"runs": labels})
    joined_files.write(table, root / "similarity.nc")
    joined_files.write_csv(rows(table), root / "similarity.csv")
    print(f"{' beside '.join(labels)}: {root / 'similarity.nc'}, {root / 'similarity.csv'}")


def rows(table: xr.Dataset) -> pd.DataFrame:
    """mean, std, low, high of the value; the same of its excess over the permuted null model."""
    parts = []
    for name in comparison_family.ACROSS:
        columns = [
            values.sel(statistic=statistic, drop=True).to_series().rename(f"{before}{statistic}")
            for values, before in (
                (table[name], ""),
                (excess_of(table, name, PERMUTED), "excess_permuted_"),
            )
            for statistic in STATISTICS
        ]
        parts.append(pd.concat(columns, axis=1).reset_index().assign(metric=name))
    return pd.concat(parts, ignore_index=True).assign(
        first=table.attrs["first"], second=table.attrs["second"]
    )
