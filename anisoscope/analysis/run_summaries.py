"""What a run is, read from its settings; and one table over all runs of an experiment.

Runs that differ in seeds only have one *condition*. A run's name serves as a label and says nothing
else.
"""

import json
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis.shapes import SHAPES, shapes, sink_head_share
from anisoscope.config.variants import seed_name
from anisoscope.measurement.families.registry import quantities
from anisoscope.models import masks
from anisoscope.results.averages import over_blocks
from anisoscope.utils.settings import flat

# Of initial parameters; of windows and masked characters; of what a mask draws.
SEEDS = ("train.seed", "train.data_seed", *(f"model.{name}" for name in masks.seeds()))
# on what a run is, and on any value that is measured of it: the corpus says data
WITHOUT_EFFECT = (
    *("mesh.", "data.", "train.num_seeds", "train.num_data_seeds", "tangents.", "watch."),
    *(f"measure.{name}" for name in ("families", "nulls", "hook_points")),
)
CORPUS = "data.corpus"
# told of every run that was trained, whether they differ or not
MODEL = ("objective", "model.mask")
OVER_LAYERS = ("anisotropy", "mean_cosine", "drift", "twonn", "norm_ratio", "leading_by_position")
SUMMARY = (
    "anisotropy",
    "mean_cosine",
    "drift",
    "twonn",
    "attention_entropy",
    "attention_max",
    "attention_first",
)
THRESHOLDS = (0.1, 0.2, 0.4, 0.5)  # of a sink head, beside the one that is stated
ENDS = ("mean", "low", "high")
BITS = {
    "test_bits": "bits per predicted character, test split",
    "valid_bits": "bits per predicted character, validation windows",
    "test_mask_bits": "bits per character under [MASK], test split",
    "test_context_gain": "context gain: bits of the best answer without context less bits of the model, test split",
    "valid_context_gain": "context gain, validation windows",
    "valid_error_masks": "standard error of valid_bits, were the masked characters of these windows drawn anew",
}


def settings(table: xr.Dataset) -> dict[str, Any]:
    """The settings of a run by dotted name; where the data have no seed of their own they have that
    of the run.
    """
    values = flat(json.loads(table.attrs["config"]))
    if values.get("train.data_seed") is None:  # tables of old have none
        values["train.data_seed"] = values.get("train.seed")  # a pretrained model has none
    return {name: value for name, value in values.items() if not name.startswith(WITHOUT_EFFECT)}


def seeds(table: xr.Dataset) -> tuple[int, int]:
    """Of the initial parameters, and of the data."""
    values = settings(table)
    return values["train.seed"], values["train.data_seed"]


def pairing(runs: xr.Dataset) -> np.ndarray:
    """The seeds (run, kind) by which the runs of a joined table are paired.

    What a mask draws goes with the seed of the weights or of the data, unless runs differ in it
    alone: a condition whose mask draws nothing may have any.
    """
    names = [name for name in SEEDS if name in runs.coords]
    plain = [name for name in SEEDS[:2] if name in names]
    alone = runs[["condition", *plain]].to_dataframe()[["condition", *plain]]
    return np.stack(
        [runs[name].values for name in (names if alone.duplicated().any() else plain)], axis=1
    )


def conditions(tables: dict[str, xr.Dataset]) -> dict[str, list[str]]:
    """Label of each condition -> names of its runs. Runs that have their seeds in common too have
    one each.
    """
    groups = {}
    for name, table in tables.items():
        values = settings(table)
        seeds = tuple(values.pop(seed, None) for seed in SEEDS)
        key = json.dumps([values, table.attrs["corpus_sha256"]])
        groups.setdefault(key, []).append((seeds, name))
    alike = []
    for same in groups.values():
        names = [name for _, name in same]
        alike += (
            [names]
            if len({seeds for seeds, _ in same}) == len(same)
            else [[name] for name in names]
        )
    labels = [_label({name: tables[name] for name in names}) for names in alike]
    return {
        label if labels.count(label) == 1 else names[0]: names
        for label, names in zip(labels, alike, strict=True)
    }


def _label(tables: dict[str, xr.Dataset]) -> str:
    """What the names of a condition's runs begin with, without their seeds."""
    if len(tables) == 1:
        return next(iter(tables))
    words = [
        name.removesuffix(seed_name(*seeds(table))).strip("_").split("_")
        for name, table in tables.items()
    ]
    common = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return "_".join(word for word, *_ in common) or "all seeds"


def corpora(tables: dict[str, xr.Dataset]) -> dict[str, str]:
    """What each run was trained on, by name; with the first digits of its sha256 where two texts
    have one name.
    """
    texts = {
        run: (table.attrs["corpus"], table.attrs["corpus_sha256"]) for run, table in tables.items()
    }
    names = [name for name, _ in set(texts.values())]
    return {
        run: name if names.count(name) == 1 else f"{name} ({sha[:8]})"
        for run, (name, sha) in texts.items()
    }


def varied(runs: xr.Dataset) -> list[str]:
    """The settings that differ between the runs of a joined table, seeds apart."""
    return [
        name
        for name in runs.coords
        if runs[name].dims == ("run",) and name not in ("run", "condition", *SEEDS)
    ]


def join(tables: dict[str, xr.Dataset], bits: dict[str, dict[str, float]]) -> xr.Dataset:
    """Means and intervals of every quantity, shapes and bits per character, over a dimension `run`.

    Coordinates of `run`: `condition`, the seeds, and every setting that differs, as text where it
    is no plain number; among them `data.corpus`, the name of the text. Runs of other lengths or
    depths have NaN where they have nothing. Values per batch and null models stay with each run.
    """
    parts, scored = [], [key for key in BITS if any(key in own for own in bits.values())]
    for name, table in tables.items():
        kept = [name for name in quantities() if name in table]
        about = {
            key: ((), bits[name].get(key, np.nan), {"long_name": BITS[key], "units": "bit"})
            for key in scored
        }
        part = table[kept].sel(statistic=list(ENDS))
        part = part.merge(shapes(table), compat="equals").assign(about)
        parts.append(part.reset_coords("depth") if "depth" in part.coords else part)
    names = pd.Index(tables, name="run")
    runs = xr.concat(parts, names, join="outer", data_vars="all", combine_attrs="drop_conflicts")
    texts = corpora(tables)
    values = {name: settings(table) | {CORPUS: texts[name]} for name, table in tables.items()}
    labels = {name: label for label, inside in conditions(tables).items() for name in inside}
    runs = runs.assign_coords(condition=("run", [labels[name] for name in tables]))
    for setting in sorted({setting for own in values.values() for setting in own}):
        column = [values[name].get(setting) for name in tables]
        if setting in SEEDS or any(value != column[0] for value in column):
            runs = runs.assign_coords({setting: ("run", _plain(column))})
    return runs


def unfinished(tables: dict[str, xr.Dataset]) -> list[str]:
    """Runs whose tables end before their training does: their last checkpoint is another's
    middle.
    """
    # pretrained models have none
    last = {name: settings(table).get("train.steps") for name, table in tables.items()}
    return [
        name
        for name, table in tables.items()
        if last[name] is not None and int(table.step[-1]) < last[name]
    ]


def without_shapes(runs: xr.Dataset, names: list[str]) -> xr.Dataset:
    """As if these runs had no shapes."""
    kept = ~runs.run.isin(names)
    return runs.assign({name: runs[name].where(kept) for name in SHAPES if name in runs})


def _plain(column: list[Any]) -> np.ndarray:
    """Numbers as they are, all else as text: a table has no null and no lists."""
    if {type(value) for value in column} <= {int, float} or all(
        type(value) is bool for value in column
    ):
        return np.array(column)
    return np.array([str(value) for value in column])


def numbers(runs: xr.Dataset) -> list[tuple[str, str, np.ndarray]]:
    """What runs are compared by: (quantity, positions, a value per run)."""
    learned = ("test_bits", "test_context_gain", "steps_to_context_gain")
    of_each = [(name, "all", runs[name].values) for name in learned if name in runs]
    for name in (name for name in SHAPES if name in runs):
        of_each += [
            (name, str(p), runs[name].sel(positions=p).values) for p in runs.positions.values
        ]
    return of_each


def rows(tables: dict[str, xr.Dataset], runs: xr.Dataset) -> pd.DataFrame:
    """One row per run: condition, seeds, settings that differ, bits, its shapes, its last
    checkpoint over blocks.

    `tables` are what results.nc of each run holds. Of the last checkpoint a row has the mean over
    blocks of some quantities, and in columns that end in `_std` its deviation over batches; columns
    that end in `_without_first` leave position 0 out, the others hold all positions.
    `sink_head_share_0.1` is the share of all heads with a mean attention on token 0 above 0.1, and
    so on; `sink_head_share` goes by the threshold of the definition.
    """
    about = ["condition", *(name for name in SEEDS if name in runs.coords), *varied(runs)]
    scored = [name for name in BITS if name in runs]
    frame = runs[scored].to_dataframe()[[*about, *scored]]
    last_values = {}
    for name, table in tables.items():
        last = table.isel(step=-1)
        same = {key: settings(table).get(key) for key in MODEL if key not in frame}
        last_values[name] = {key: value for key, value in same.items() if value is not None}
        last_values[name]["step"] = table.step.values[-1].item()
        read = shapes(table)
        for positions in table.positions.values:
            suffix = "" if positions == "all" else f"_{positions}"
            # attention is read at all positions alone
            if "attention_first" in table and not suffix:
                first = table["attention_first"].sel(positions=positions, statistic="mean")
                last_values[name] |= {
                    f"sink_head_share_{above}": sink_head_share(first, above).item()
                    for above in THRESHOLDS
                }
            for quantity in (quantity for quantity in SUMMARY if quantity in table):
                values = last[over_blocks(quantity)].sel(positions=positions)
                last_values[name][f"{quantity}{suffix}"] = values.sel(statistic="mean").item()
                last_values[name][f"{quantity}_std{suffix}"] = values.sel(statistic="std").item()
            last_values[name] |= {
                f"{key}{suffix}": read[key].sel(positions=positions).item() for key in read
            }
    return frame.join(pd.DataFrame.from_dict(last_values, orient="index")).reset_index()


def layers(tables: dict[str, xr.Dataset], runs: xr.Dataset) -> pd.DataFrame:
    """A row per run, set of positions and layer, the last checkpoint: what shapes over depth are
    read off.
    """
    conditions, rows = dict(zip(runs.run.values, runs["condition"].values, strict=True)), []
    for name, table in tables.items():
        there = [one for one in OVER_LAYERS if one in table]
        for positions in table.positions.values if there else ():
            means = table[there].isel(step=-1).sel(positions=positions, statistic="mean", drop=True)
            frame = means.reset_coords(drop=True).to_dataframe().reset_index()
            rows.append(frame.assign(run=name, condition=conditions[name], positions=positions))
    frame = pd.concat(rows) if rows else pd.DataFrame(columns=["layer"])
    about = ["run", "condition", "positions", "layer"]
    return frame[[*about, *(one for one in frame if one not in about)]] if rows else frame
