"""Describe runs by their settings, and join all runs of an experiment in one table.

Runs that differ in seeds only have one *condition*. A run's name serves as a label and says nothing
else.
"""

import json
from itertools import takewhile
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis.shapes import SHAPES, read_curve, shapes, sink_head_share
from anisoscope.config.variants import seed_name
from anisoscope.metrics.registry import quantities
from anisoscope.models import masks
from anisoscope.results.summary import block_average
from anisoscope.utils.settings import flat

Tables = dict[str, xr.Dataset]  # what results.nc holds, by the name of the run
# seeds of initial parameters, of windows and masked characters, and of random masks
SEED_SETTINGS = ("train.seed", "train.data_seed", *(f"model.{name}" for name in masks.mask_seeds()))
# on the identity of a run and on measured values; the corpus stands for data
WITHOUT_EFFECT = (
    *("mesh.", "data.", "train.num_seeds", "train.num_data_seeds", "tangents.", "watch."),
    *("measure.families", "measure.nulls", "measure.hook_points"),
)
CORPUS = "data.corpus"
MODEL = ("objective", "model.mask")  # columns of runs.csv whether they differ or not
OVER_LAYERS = (
    "anisotropy",
    "mean_cosine",
    "drift",
    "twonn",
    "norm_ratio",
    "first_pc_variance_by_position",
)
SUMMARY = (
    *("anisotropy", "mean_cosine", "drift", "twonn"),
    *("attention_entropy", "attention_max", "attention_first_token"),
)
FURTHER_THRESHOLDS = (0.1, 0.2, 0.4, 0.5)  # further thresholds for sink heads
BITS = {
    "test_bits": "bits per predicted character, test split",
    "valid_bits": "bits per predicted character, validation windows",
    "test_mask_bits": "bits per character under [MASK], test split",
    "test_gain_over_unigram": "gain over unigram: unigram bits minus the bits of the model, test split",
    "valid_gain_over_unigram": "gain over unigram, validation windows",
    "valid_error_masks": "standard error of valid_bits if the masked characters of these windows were drawn again",
}


def table_settings(table: xr.Dataset) -> dict[str, Any]:
    """Return the settings of a run that matter, by dotted name.

    Where the data have no seed of their own they have that of the run.
    """
    values = flat(json.loads(table.attrs["config"]))
    if values.get("train.data_seed") is None:
        values["train.data_seed"] = values.get("train.seed")  # a pretrained model has none
    return {name: value for name, value in values.items() if not name.startswith(WITHOUT_EFFECT)}


def table_seeds(table: xr.Dataset) -> tuple[int, int]:
    """Return the seeds of the initial parameters and of the data."""
    values = table_settings(table)
    return values["train.seed"], values["train.data_seed"]


def pairing(runs: xr.Dataset) -> np.ndarray:
    """Return the seeds (run, kind) by which the runs of a joined table are paired.

    The seed of a mask counts only where runs differ in nothing else: otherwise it goes with the
    seed of the weights or of the data, and a condition whose mask draws nothing may have any.
    """
    names = [name for name in SEED_SETTINGS if name in runs.coords]
    plain = [name for name in SEED_SETTINGS[:2] if name in names]
    columns = ["condition", *plain]
    differ_in_masks = runs[columns].to_dataframe()[columns].duplicated().any()
    return np.stack([runs[name].values for name in (names if differ_in_masks else plain)], axis=1)


def conditions(tables: Tables) -> dict[str, list[str]]:
    """Return the label of each condition and the names of its runs.

    Runs that share even their seeds are a condition each.
    """
    groups: dict[str, dict[str, tuple]] = {}
    for name, table in tables.items():
        values = table_settings(table)
        seeds = tuple(values.pop(seed, None) for seed in SEED_SETTINGS)
        groups.setdefault(json.dumps([values, table.attrs["corpus_sha256"]]), {})[name] = seeds
    members = []
    for group in groups.values():
        distinct = len({*group.values()}) == len(group)
        members += [list(group)] if distinct else [[name] for name in group]
    labels = [_label({name: tables[name] for name in names}) for names in members]
    named = zip(labels, members, strict=True)
    return {label if labels.count(label) == 1 else names[0]: names for label, names in named}


def _label(tables: Tables) -> str:
    """Return the first words that the names of a condition's runs share, without their seeds."""
    if len(tables) == 1:
        return next(iter(tables))
    words = [
        name.removesuffix(seed_name(*table_seeds(table))).strip("_").split("_")
        for name, table in tables.items()
    ]
    common = takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False))
    return "_".join(word for word, *_ in common) or "all seeds"


def corpora(tables: Tables) -> dict[str, str]:
    """Return what each run was trained on; with digits of its sha256 where names are ambiguous."""
    texts = {
        run: (table.attrs["corpus"], table.attrs["corpus_sha256"]) for run, table in tables.items()
    }
    names = [name for name, _ in {*texts.values()}]
    return {
        run: name if names.count(name) == 1 else f"{name} ({sha[:8]})"
        for run, (name, sha) in texts.items()
    }


def varied(runs: xr.Dataset) -> list[str]:
    """Return the settings other than seeds that differ between the runs of a joined table."""
    others = ("run", "condition", *SEED_SETTINGS)
    return [name for name in runs.coords if runs[name].dims == ("run",) and name not in others]


def join_runs(tables: Tables, bits: dict[str, dict[str, float]]) -> xr.Dataset:
    """Join means and intervals of every quantity, shapes and bits per character, along `run`.

    Coordinates of `run`: `condition`, the seeds, and every setting that differs, as text where it
    is not a number; among them `data.corpus`, the name of the text. Runs of other lengths or
    depths have NaN where they have nothing. Values per batch and null models stay with each run.
    """
    parts = []
    for name, table in tables.items():
        part = table[[quantity for quantity in quantities() if quantity in table]]
        part = part.sel(statistic=["mean", "low", "high"]).merge(shapes(table), compat="equals")
        part = part.reset_coords([name for name in ("depth",) if name in part.coords])
        for key, value in bits[name].items():
            part[key] = (), value, {"long_name": BITS[key], "units": "bit"}
        parts.append(part)
    names = pd.Index(tables, name="run")
    runs = xr.concat(parts, names, join="outer", data_vars="all", combine_attrs="drop_conflicts")
    labels = {name: label for label, members in conditions(tables).items() for name in members}
    runs = runs.assign_coords(condition=("run", [labels[name] for name in tables]))
    texts = corpora(tables)
    values = [table_settings(table) | {CORPUS: texts[name]} for name, table in tables.items()]
    for setting in sorted({setting for own in values for setting in own}):
        column = [own.get(setting) for own in values]
        if setting in SEED_SETTINGS or any(value != column[0] for value in column):
            runs = runs.assign_coords({setting: ("run", _plain(column))})
    return runs


def without_unfinished(runs: xr.Dataset, tables: Tables) -> tuple[xr.Dataset, list[str]]:
    """Take out the shapes of runs whose tables end before their training does; name these runs."""
    last = {name: table_settings(table).get("train.steps") or 0 for name, table in tables.items()}
    names = [name for name, table in tables.items() if int(table.step[-1]) < last[name]]
    kept = ~runs.run.isin(names)
    shapes = {name: runs[name].where(kept) for name in SHAPES if name in runs}
    return runs.assign(shapes if names else {}), names


def _plain(column: list[Any]) -> np.ndarray:
    """Keep numbers, and convert anything else to text: a table has no null and no lists."""
    types = {type(value) for value in column}
    return np.array(column if types <= {int, float} or types == {bool} else [*map(str, column)])


def compared_values(runs: xr.Dataset) -> list[tuple[str, str, np.ndarray]]:
    """Return the numbers by which runs are compared: quantity, positions, and a value per run."""
    learned = ("test_bits", "test_gain_over_unigram", "steps_to_gain_over_unigram")
    return [(name, "all", runs[name].values) for name in learned if name in runs] + [
        (name, str(positions), runs[name].sel(positions=positions).values)
        for name in SHAPES
        if name in runs
        for positions in runs.positions.values
    ]


def run_rows(tables: Tables, runs: xr.Dataset, unfinished: list[str]) -> pd.DataFrame:
    """Return one row per run: condition, seeds, settings, bits, shapes, and means over blocks.

    Means over blocks are those of the last checkpoint, and columns that end in `_std` their
    deviation over batches. Columns that end in `_without_first_token` leave the first token out, the others
    hold all positions. `sink_head_share_0.1` is the share of all heads with a mean attention on
    the first token above 0.1, and so on; `sink_head_share` goes by the threshold of the definition.
    """
    attributes = [
        "condition",
        *(name for name in SEED_SETTINGS if name in runs.coords),
        *varied(runs),
    ]
    columns = [*attributes, *(name for name in BITS if name in runs)]
    frame = runs[columns].reset_coords().to_dataframe()[columns]
    last_values = {}
    for name, table in tables.items():
        last, read, own = table.isel(step=-1), shapes(table), table_settings(table)
        values = {key: own[key] for key in MODEL if key not in frame and own.get(key) is not None}
        values |= {"step": last.step.item(), "unfinished": name in unfinished}
        for place, positions in enumerate(table.positions.values):
            suffix = "" if positions == "all" else f"_{positions}"
            # attention is read at all positions alone
            if "attention_first_token" in table and not suffix:
                first = read_curve(table, "attention_first_token")
                for above in FURTHER_THRESHOLDS:
                    values[f"sink_head_share_{above}"] = sink_head_share(first, above)[place]
            for quantity in (quantity for quantity in SUMMARY if quantity in table):
                means = last[block_average(quantity)].sel(positions=positions)
                for ending, statistic in (("", "mean"), ("_std", "std")):
                    values[f"{quantity}{ending}{suffix}"] = means.sel(statistic=statistic).item()
            values |= {f"{key}{suffix}": x.values[place] for key, x in read.items()}
        last_values[name] = values
    return frame.join(pd.DataFrame.from_dict(last_values, orient="index")).reset_index()


def layers(tables: Tables, runs: xr.Dataset) -> pd.DataFrame:
    """Return one row per run, set of positions and layer of the last checkpoint."""
    frames, order = [], ["run", "condition", "positions", "layer", *OVER_LAYERS]
    for name, table in tables.items():
        if columns := [quantity for quantity in OVER_LAYERS if quantity in table]:
            last = table[columns].isel(step=-1).sel(statistic="mean", drop=True)
            frame = last.transpose("positions", "layer").reset_coords(drop=True).to_dataframe()
            condition = runs["condition"].sel(run=name).item()
            frames.append(frame.reset_index().assign(run=name, condition=condition))
    frame = pd.concat(frames) if frames else pd.DataFrame()
    return frame[[column for column in order if column in frame]]
