"""Read what an experiment's tables say about each claim: a number for each model and seed.

A row has a claim, a model (a condition of the experiment), its unit (a seed), the value, positive
as claimed, and the gain over unigram in bits. Where a table has one number with an error in place
of one per seed, like a contrast or a correlation, `error`, `freedom` and `n` say so; of a single
model on one sample `low` and `high` do. `part` names what a row is of where it is
not of the whole model: such a row is not counted.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis.contrasts import factors
from anisoscope.analysis.correlations import correlate
from anisoscope.results import joined_files
from findings.claims.claim_entries import CLAIMS, ENCODER, MODELS, PLAIN, Claim

NAME = "evidence.csv"
EARLY = 0.3  # fraction of training, as in the paper
CROSSED = "weight and data seeds are crossed, so runs are not independent"
UNFINISHED = "not measured to its last step"
ROOM = 0.9  # largest mean cosine of an input to which a block can still add
TEXTS = ("claim", "model", "unit", "outside", "part")
COLUMNS = ("claim", "model", "unit", "value", "error", "freedom", "n", "low", "high", "gain")
COLUMNS += ("outside", "part")
RUN_COLUMNS = ("condition", "run", "gain", "outside")
Rows = Iterator[dict[str, Any]]


def read_evidence(folder: pathlib.Path) -> pd.DataFrame:
    """Collect the evidence for every claim; read evidence.csv where there is no other table.

    Raises:
        ValueError: no table of the folder has evidence on any claim.
    """
    runs = read_runs_with_kinds(folder)
    rows = [
        {"claim": name, "outside": "", "part": ""} | row
        for name, claim in CLAIMS.items()
        for row in READERS[claim.table](folder, runs, claim)
    ]
    if rows:
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        return frame.sort_values(["claim", "model"], kind="stable")
    if not (folder / NAME).exists():
        raise ValueError(f"{folder} contains no table with evidence on any claim")
    return joined_files.read_csv(folder / NAME, *TEXTS)


def read_runs_with_kinds(folder: pathlib.Path) -> pd.DataFrame:
    """Read runs.csv with the kind and gain over unigram of each model; no rows if it is absent."""
    runs = pd.DataFrame(columns=["kind"])
    if (folder / "runs.csv").exists():
        runs = joined_files.read_csv(folder / "runs.csv", "run", "condition")
    if not {"objective", "model.mask", "train.seed"} <= {*runs}:
        return pd.DataFrame(columns=["kind", "condition"])
    pairs = zip(runs["objective"], runs["model.mask"], strict=True)
    kinds = np.array([MODELS.get(pair, "other") for pair in pairs], dtype=object)
    for setting in (name for name in PLAIN if name in runs):
        kinds[(runs[setting] != PLAIN[setting]).to_numpy()] = "other"
    gain = runs.get("test_gain_over_unigram", np.nan)
    return runs.assign(kind=kinds, gain=gain, outside=_why_not_independent(runs))


def _why_not_independent(runs: pd.DataFrame) -> pd.Series:
    """Return why a run is no independent sample of its condition; "" if it is."""
    seeds = [name for name in ("train.seed", "train.data_seed") if name in runs]
    reasons = pd.Series("", runs.index)
    for _, group in runs.groupby("condition"):
        if len(factors(group[seeds].to_numpy())) > 1:
            reasons[group.index] = CROSSED
    return reasons.mask(runs.get("unfinished", pd.Series(False, runs.index)), UNFINISHED)


def _row(run: Any, value: float) -> dict[str, Any]:
    about = {"model": run["condition"], "unit": run["run"], "outside": run["outside"]}
    return about | {"value": float(value), "gain": run["gain"]}


def _number(claim: Claim, values: Any) -> float:
    return claim.number(*(values[column] for column in claim.columns))


def from_runs(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Take columns of runs.csv."""
    if not {*claim.columns} <= {*runs}:
        return
    known = [regime for regime in claim.regime if {*regime.columns} <= {*runs}]
    read = {*claim.columns}.union(*(regime.columns for regime in known))
    own = runs.loc[runs["kind"].isin(claim.models), [*RUN_COLUMNS, *read]]
    for run in own.to_dict("records"):
        failed = [x.reason for x in known if not x.holds(*(run[name] for name in x.columns))]
        reasons = [run["outside"], *failed]
        yield _row(run, _number(claim, run)) | {"outside": next(filter(None, reasons), "")}


def from_pairs(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Subtract the encoder of the same seeds, whose condition differs only in the kind's name."""
    seeds, (column,) = ["train.seed", "train.data_seed"], claim.columns
    if not {column, *seeds} <= {*runs}:
        return
    runs = runs[[*RUN_COLUMNS, *seeds, "kind", column]]
    for condition, decoders in runs[runs["kind"] == "decoder"].groupby("condition", sort=False):
        names = {condition.replace("decoder", "encoder"), "_".join(ENCODER[::-1])} - {condition}
        encoders = runs[(runs["kind"] == "encoder") & runs["condition"].isin(names)]
        both = decoders.merge(encoders, on=seeds, suffixes=("", "_encoder"))
        for pair in both.to_dict("records"):
            yield _row(pair, claim.number(pair[column] - pair[f"{column}_encoder"])) | {
                "model": f"{condition} less encoder",
                "gain": np.minimum(pair["gain"], pair["gain_encoder"]),  # NaN where one is
                "outside": pair["outside"] or pair["outside_encoder"],
            }


def over_models(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Correlate the conditions' means, as Fisher's z with the error 1/sqrt(n - 3)."""
    columns = [*claim.columns]
    if not {*columns} <= {*runs} or runs["condition"].nunique() < 2:
        return
    runs = runs[np.isfinite(runs[columns]).all(axis=1)]
    means = runs.groupby("condition")[columns].mean()
    yield {
        "model": "over models",
        "unit": "z of r",
        "value": np.arctanh(correlate(*means.to_numpy().T).pearson),
        "error": (len(means) - 3) ** -0.5 if len(means) > 3 else np.nan,
        "freedom": np.inf,
        "n": len(means),
        "gain": runs["gain"].min(skipna=False),  # that of the seed that has learned least
        "outside": UNFINISHED if (runs["outside"] == UNFINISHED).any() else "",
    }


def over_layers(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Correlate two columns of layers.csv within each run."""
    columns, path = [*claim.columns], folder / "layers.csv"
    if runs.empty or not path.exists():
        return
    layers = joined_files.read_csv(path, "run", "condition")
    if not {*columns} <= {*layers}:
        return
    by_name = runs.set_index("run", drop=False)
    for name, rows in layers[layers["positions"] == "all"].groupby("run", sort=False):
        if by_name.loc[name, "kind"] in claim.models:
            rho = stats.spearmanr(*(rows[column] for column in columns)).statistic
            yield _row(by_name.loc[name], rho)


def from_matched(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Take the rows of contrasts_loss_matched.csv."""
    path = folder / "contrasts_loss_matched.csv"
    if not path.exists():
        return
    contrasts = joined_files.read_csv(path, "setting", "before", "after", "held", "without")
    place = claim.contrast._asdict() | {"quantity": claim.columns[0], "positions": "all"}
    for column, value in place.items():
        contrasts = contrasts[contrasts[column] == value] if value else contrasts
    for row in contrasts.to_dict("records"):
        held = f" ({row['held']})" if len(contrasts) > 1 else ""
        yield {
            "model": f"{row['before']} → {row['after']}{held}",
            "unit": "contrast",
            "value": claim.number(row["change"]),
            "error": row["error"],
            "freedom": row["freedom"],
            "n": row["pairs"],
            "gain": np.nan if row["without"] else row["level"],  # a run has never learned
            # pairs of crossed seeds are more than their noise has degrees of freedom
            "outside": CROSSED if row["freedom"] < row["pairs"] - 1 else "",
        }


def from_tangents(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read tangents.csv, means over blocks; the embedding is a part.

    It holds the early semi-NMF subspace of the largest rank, raw gradients.
    """
    path = folder / "tangents.csv"
    if runs.empty or not path.exists():
        return
    tables = dict(tuple(joined_files.read_csv(path, "run").groupby("run")))
    own = runs.loc[runs["kind"].isin(claim.models) & runs["run"].isin(tables), [*RUN_COLUMNS]]
    for run in own.to_dict("records"):
        table = tables[run["run"]]
        for layers, part in ((table["layer"] > 0, ""), (table["layer"] == 0, "embedding")):
            values = tangent_values(table[layers].drop(columns="run"))
            yield _row(run, _number(claim, values)) | {"part": part}


def tangent_values(table: pd.DataFrame) -> dict[str, float]:
    """Return the means over a run's layers that claims on gradients read.

    Energy of a random subspace of the whole space is k / D. Of one in the complement of a subspace
    with energy e it is c = (1 − e) k / (D − k) on average, so k / D is c / (1 − e + c).
    """
    energy, control = table["energy"], table["control_energy"]
    table = table.assign(random=control / (1 - energy + control), ratio=np.log2(energy / control))
    steps = table.groupby("step").mean()
    first, last = steps.reindex([0]).iloc[0], steps.iloc[-1]
    early = steps[(steps.index > 0) & (steps.index <= EARLY * steps.index[-1])]
    return {
        "energy": last["energy"],
        "first_energy": first["energy"],
        "early_energy": early["energy"].mean(),
        "control": last["control_energy"],
        "random": last["random"],
        "excess": last["excess"],
        "log_ratio": last["ratio"],
        "first_log_ratio": first["ratio"],
        "isoscore_gain": last["isoscore_gain"],
        "isoscore_gain_normal": last["isoscore_gain_normal"],
        "least_frequent": last["enrichment_1"],
        "most_frequent": last["enrichment_4"],
    }


def from_untrained(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read the last block, with a bidirectional mask and a bias on the embedding, by norm order.

    Biases that already bring the cosine of the input close to 1 are left out of its mean.
    """
    if not (path := folder / "seeds.nc").exists():
        return
    table = joined_files.read_table(path).isel(mask=0, embedding=0, target=0, block=-1)
    least, most = table.isel(relative_norm=0), table.isel(relative_norm=-1)
    added = table["cosine_out"] - table["cosine_in"]
    values = {
        "added": added.where(table["cosine_in"] <= ROOM).mean("relative_norm"),
        "added_without_bias": added.sel(relative_norm=0),
        "score_std_growth": np.log2(most["score_std"] / least["score_std"]),
        "entropy_decrease": least["attention_entropy"] - most["attention_entropy"],
    }
    for norm in table["norm_order"].values:
        yield from _by_seed(f"{norm}-LN block", _number(claim, values).sel(norm_order=norm))


def from_curved(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read the seeds of the curved manifolds, means over manifolds and curvatures."""
    if not (path := folder / "measurements" / "seeds.nc").exists():
        return
    table = joined_files.read_table(path)
    share = np.log2(table["biased_normal_share"].sel(weighting="none"))
    values = {
        "slope_difference": table["slope_normal_norm"] - table["slope_tangent_norm"],
        "share_decrease": share.isel(bias=0) - share.isel(bias=-1),
    }
    yield from _by_seed("known manifolds", _number(claim, values).mean(("manifold", "curvature")))


def _by_seed(model: str, values: Any) -> Rows:
    for seed in values["seed"].values:
        yield {"model": model, "unit": f"seed {seed}", "value": float(values.sel(seed=seed))}


READERS: dict[str, Callable[[pathlib.Path, pd.DataFrame, Claim], Rows]] = {
    "runs": from_runs,
    "pairs": from_pairs,
    "over_models": over_models,
    "layers": over_layers,
    "matched": from_matched,
    "tangents": from_tangents,
    "untrained": from_untrained,
    "curved": from_curved,
}
