"""The tables of a run over all checkpoints: results.nc, batches.nc and a tidy results.csv."""

import json
import math
import pathlib
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.metrics.registry import FAMILIES, find_family, quantities
from anisoscope.results import joined_files
from anisoscope.results.frame import NOISE_FLOOR, tidy
from anisoscope.results.replicates_table import BEFORE, MASSIVE_COUNTS
from anisoscope.results.summary import block_average, over_heads, summarize_checkpoint
from anisoscope.utils.errors import UserError


def write_joined(
    run: pathlib.Path,
    raw: dict[int, xr.Dataset],
    families: tuple[str, ...],
    nulls: tuple[str, ...],
    attributes: dict,
    scores: xr.Dataset | None = None,
) -> list[pathlib.Path]:
    """Join the raw tables and the scores, and write them, with the run's attributes; return paths."""
    results, batches = join_steps(raw, families, nulls)
    results = results if scores is None else results.merge(scores, join="left")
    results.attrs = batches.attrs = attributes
    mark_noise(results, json.loads(attributes.get(NOISE_FLOOR, "{}")))
    paths = [run / name for name in ("results.nc", "batches.nc", "results.csv")]
    joined_files.write_table(results, paths[0])
    joined_files.write_table(batches, paths[1])
    joined_files.write_csv(tidy(results, batches.sizes["batch"]), paths[2])
    return paths


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
    for name in MASSIVE_COUNTS:
        counts = [table[name] for table in raw.values() if name in table]
        if counts:
            results[name] = xr.concat(counts, "step", combine_attrs="override").variable
    return results, batches


def mark_noise(results: xr.Dataset, noise: dict[str, float]) -> None:
    """Note in a quantity's attributes its noise floor over batch sizes and kernels.

    Averages of the quantity get the same attribute, since they vary no more.
    """
    for name, floor in noise.items():
        if name in results and math.isfinite(floor):
            for variable in {name, over_heads(name), block_average(name)} & {*results.data_vars}:
                results[variable].attrs[NOISE_FLOOR] = floor


def _select_families(table: xr.Dataset, families: tuple[str, ...]) -> xr.Dataset:
    own = [name for name in table.data_vars if name in quantities()]
    return table.drop_vars([name for name in own if find_family(name) not in families])


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
