"""The tables of a run over all checkpoints: results.nc, batches.nc and a tidy results.csv."""

import json
import math
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from pandas.api.types import is_numeric_dtype

from anisoscope.measurement.families.registry import FAMILIES, find_family, quantities
from anisoscope.results import joined_files
from anisoscope.results.derived import averages, excess_name, excess_of, nulls_in, values_of
from anisoscope.results.replicates_table import BEFORE
from anisoscope.results.summary import STATISTICS, summarize_checkpoint
from anisoscope.utils.errors import UserError

PLACES = ("run", "step", "positions", "layer", "block", "head")  # dimensions with a column each
ENDINGS = {"": "mean", "_low": "low", "_high": "high"}  # endings of an excess's columns
NOISE_FLOOR = "noise_floor"  # attribute of a run (JSON, by quantity) and of each quantity


def write_joined(
    run: pathlib.Path,
    raw: dict[int, xr.Dataset],
    families: tuple[str, ...],
    nulls: tuple[str, ...],
    attributes: dict,
    scores: xr.Dataset | None = None,
) -> None:
    """Join the raw tables and the scores, and write them; `about` are the attributes."""
    results, batches = join_steps(raw, families, nulls)
    results = results if scores is None else results.merge(scores, join="left")
    results.attrs = batches.attrs = attributes
    mark_noise(results, json.loads(attributes.get(NOISE_FLOOR, "{}")))
    joined_files.write_table(results, run / "results.nc")
    joined_files.write_table(batches, run / "batches.nc")
    joined_files.write_csv(tidy(results, batches.sizes["batch"]), run / "results.csv")


def join_steps(
    raw: dict[int, xr.Dataset], families: tuple[str, ...], nulls: tuple[str, ...]
) -> tuple[xr.Dataset, xr.Dataset]:
    """Make the contents of results.nc and batches.nc; NaN at steps without a family.

    Families that are not named are dropped, and null models that none of the families has.
    """
    entries = [FAMILIES[family] for family in families]
    known = {null for entry in entries for null in (*entry.nulls, *entry.exact_nulls)}
    nulls = tuple(null for null in nulls if null in known)
    raw = {step: _select_families(table, families) for step, table in raw.items()}
    if not any(name in table for table in raw.values() for name in quantities()):
        raise UserError(
            f"no checkpoint or table has {', '.join(families)}; run --stages=train first"
        )
    summaries = [summarize_checkpoint(table, raw.get(0), nulls) for table in raw.values()]
    how = {"join": "exact", "data_vars": "all", "coords": "minimal", "compat": "override"}
    results, batches = (
        xr.concat(tables, "step", combine_attrs="override", **how)
        for tables in zip(*summaries, strict=True)
    )
    compared = [table[BEFORE] for table in raw.values() if BEFORE in table]
    if "comparison" in families and compared:
        steps = [int(table.get(BEFORE, -1)) for table in raw.values()]
        results[BEFORE] = "step", steps, compared[0].attrs
    return results, batches


def mark_noise(results: xr.Dataset, noise: dict[str, float]) -> None:
    """Note in a quantity's attributes its noise floor over batch sizes and kernels.

    Averages of the quantity get the same attribute, since they vary no more.
    """
    for name, floor in noise.items():
        if name in results and math.isfinite(floor):
            for variable in {name, *averages(name)} & {*results.data_vars}:
                results[variable].attrs[NOISE_FLOOR] = floor


def _select_families(table: xr.Dataset, families: tuple[str, ...]) -> xr.Dataset:
    own = [name for name in table.data_vars if name in quantities()]
    return table.drop_vars([name for name in own if find_family(name) not in families])


def tidy(results: xr.Dataset, batches: int) -> pd.DataFrame:
    """Make a row for each number: run, corpus, step, positions, metric, layer, head, statistics.

    `axis` and `at` name any other dimension and the place on it, such as neighbors 8 or top 4. The
    statistics are mean, std, low and high over batches, and excess_<null>, excess_<null>_low and
    excess_<null>_high. `layer` may be a block. An average over blocks is a metric of its own
    (`twonn_over_blocks`) without a layer. `noise_floor`, for pretrained models, says how much a
    value of the metric varies with batch size and kernels.
    """
    names, nulls, parts = values_of(results), nulls_in(results), []
    excesses = [results[excess_name(name)] for name in names if excess_name(name) in results]
    nulls = nulls if any(excess.notnull().any() for excess in excesses) else []
    for name in names:
        values = results[name]
        frame = _rows(values)
        for null in nulls:
            excess = _rows(excess_of(results, name, null).transpose(*values.dims))
            ends = {f"excess_{null}{end}": excess[key] for end, key in ENDINGS.items()}
            frame = frame.assign(**ends)
        further = [dim for dim in frame.index.names if dim not in PLACES]
        if len(further) > 1:
            what = f"{name} has the dimensions {', '.join(map(str, further))}"
            raise ValueError(f"{what}; select a place on all but one of them")
        frame = frame.reset_index().rename(
            columns={"block": "layer"} | dict.fromkeys(further, "at")
        )
        frame = frame.assign(metric=name, units=values.attrs["units"])
        frame[NOISE_FLOOR] = values.attrs.get(NOISE_FLOOR, np.nan)
        parts.append(frame.assign(axis=further[0]) if further else frame)
    attributes = {"run": results.attrs.get("run"), "corpus": results.attrs.get("corpus")}
    frame = pd.concat(parts, ignore_index=True).assign(**attributes, batches=batches)
    columns = ["run", "corpus", "step", "positions", "metric", "layer", "head", "axis", "at"]
    columns += [*STATISTICS, *(f"excess_{null}{end}" for null in nulls for end in ENDINGS)]
    columns += [NOISE_FLOOR] * bool(frame[NOISE_FLOOR].notna().any()) + ["batches", "units"]
    if "layer_name" in results.coords:  # names from the user
        words = dict(zip(results["layer"].values, results["layer_name"].values, strict=True))
        frame["layer_name"] = frame["layer"].map(words)
        columns.insert(columns.index("head"), "layer_name")
    frame = frame.reindex(columns=columns)
    whole = [
        name
        for name in ("layer", "head")
        if is_numeric_dtype(frame[name]) and (frame[name].dropna() % 1 == 0).all()
    ]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _rows(values: xr.DataArray) -> pd.DataFrame:
    """Make a row for each place, and a column for each statistic."""
    dims = [dim for dim in values.dims if dim != "statistic"]
    dataset = values.reset_coords(drop=True).to_dataset("statistic")
    return dataset.to_dataframe(dim_order=dims)


LOGGED = {  # name in a line of train.jsonl: name in a table, in words
    "bits_per_character": ("validation_bits", "bits per predicted character, validation windows"),
    "context_free_bits": (
        "validation_context_free_bits",
        "bits of the objective's best answer without context, on the same characters",
    ),
    "gain_over_unigram": (
        "validation_gain_over_unigram",
        "gain over unigram: bits of the best answer without context minus bits of the model, validation",
    ),
    "mask_bits": ("validation_mask_bits", "bits per character under [MASK], validation windows"),
    "error_windows": (
        "validation_error_windows",
        "standard error of the validation bits if the windows were drawn again",
    ),
    "error_masks": (
        "validation_error_masks",
        "standard error of the validation bits if the masked characters of these windows were drawn again",
    ),
}


def scores(lines: list[dict[str, Any]], steps: list[int]) -> xr.Dataset:
    """Make variables over these steps; NaN at steps without a validation."""
    valid = {line["step"]: line for line in lines if line["kind"] == "valid"}
    variables = {}
    for key, (name, words) in LOGGED.items():
        values = [float(valid.get(step, {}).get(key, np.nan)) for step in steps]
        if np.isfinite(values).any():
            variables[name] = ("step", values, {"long_name": words, "units": "bit"})
    return xr.Dataset(variables, {"step": list(steps)})
