"""Compare two models by the folders of their runs: what both sides share, and the table of a pair.

two_runs.py pairs our runs, hf/two_pretrained.py pretrained models. A comparison across different
points, texts or settings is refused.
"""

import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.results import joined_files
from anisoscope.results.frame import to_frame
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.folds import cut_runs
from anisoscope.sources.paired_clouds import PairedClouds, compare_clouds, make_pair_table
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, user_path
from anisoscope.utils.progress import progress_bar
from anisoscope.utils.settings import format_differences

# settings of measure that decide which vectors form a cloud
SETTINGS = ("points", "batches", "folds", "seed", "masked")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityConfig:
    """Settings of the comparison of two models."""

    runs: tuple[str, ...] = ()  # two folders; @step selects another step than the last


class ModelPair(NamedTuple):
    """Two models to compare: their labels, settings, text, clouds and attributes."""

    labels: tuple[str, str]
    measure: MeasureConfig
    text: dict[str, Any]  # what environment.json records of it
    batches: Iterator[list[PairedClouds]]  # per batch, the clouds of each set of positions
    attributes: dict[str, Any]  # of the table


def measure_pair(pair: ModelPair) -> xr.Dataset:
    """Measure every layer of one model with every layer of the other, with intervals and excess."""
    folds = cut_runs(np.arange(pair.measure.points), pair.measure.folds)
    label, total = " and ".join(pair.labels), pair.measure.batches
    batches = progress_bar(pair.batches, label, "batch", total=total)
    values = [[compare_clouds(clouds, folds) for clouds in sets] for sets in batches]
    return make_pair_table(values, POSITION_SETS).assign_attrs(pair.attributes)


def write_similarity(table: xr.Dataset, labels: tuple[str, str], root: pathlib.Path) -> None:
    """Write similarity.nc and similarity.csv, with the columns of results.csv and both labels."""
    table.attrs["config"] = json.dumps({"runs": labels})
    sides = {side: table.attrs[side] for side in ("first", "second")}
    joined_files.write_table(table, root / "similarity.nc")
    joined_files.write_csv(to_frame(table).assign(**sides), root / "similarity.csv")
    print(f"{' and '.join(labels)}: {root / 'similarity.nc'}, {root / 'similarity.csv'}")


def split_step(name: str) -> tuple[str, str | None]:
    """Split "folder@step"; None without a step, also where the folder's own name has an @."""
    name = str(user_path(name)) if name.startswith("~") else name
    path, at, step = name.rpartition("@")
    named = at and "/" not in step and not pathlib.Path(name).is_dir()
    return (path, step) if named else (name, None)


def is_pretrained(name: str) -> bool:
    """Return whether the folder of a run, with or without @step, holds pretrained models."""
    path = pathlib.Path(split_step(name)[0]) / "config.json"
    settings = read_json(path, "name the folder of a trained run")
    return "pretrained" in settings or "models" in settings


def choose_step(name: str, steps: list[int]) -> int:
    """Return the step after @, or the last step."""
    path, step = split_step(name)
    if not steps:
        raise UserError(f"--similarity={name}: {path} has no checkpoint; run --stages=train first")
    if step is not None and (not (step.isascii() and step.isdecimal()) or int(step) not in steps):
        raise UserError(
            f"--similarity={name}: {path} has no checkpoint of step {step!r}; it has {steps}"
        )
    return steps[-1] if step is None else int(step)


def choose_labels(names: tuple[str, str], steps: tuple[int, int]) -> tuple[str, str]:
    """Label both runs by their folders; equal names get their steps, or else the whole path."""
    folders = [pathlib.Path(split_step(name)[0]).resolve().name for name in names]
    if folders[0] != folders[1]:
        return tuple(folders)
    if steps[0] != steps[1]:
        return tuple(f"{name}@{step}" for name, step in zip(folders, steps, strict=True))
    return tuple(pathlib.Path(name).as_posix().strip("./").replace("/", "_") for name in names)


def check_comparable(names: tuple[str, str], texts: list[dict[str, Any]], advice: str) -> None:
    """Raise UserError where {name: value} of the two models differ."""
    first, second = ({name: str(value)[:12] for name, value in text.items()} for text in texts)
    if different := format_differences(first, second, whose=("of the first", "of the second")):
        both = " and ".join(names)
        raise UserError(f"--similarity: {both} have no points in common: {different}; {advice}")
