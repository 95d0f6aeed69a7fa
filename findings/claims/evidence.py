"""Read what an experiment's tables say about each claim: a number for each model and seed.

A row has a claim, a model (a condition of the experiment), its unit (a seed), the value, and the
gain over unigram in bits. Where a table has one number with an error in place of one per seed, like
a contrast or a correlation, `error`, `freedom` and `n` say so.
"""

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import on_disk, run_summaries
from anisoscope.analysis.contrasts import factors
from anisoscope.analysis.correlations import correlate
from anisoscope.results import joined_files
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.folder import SETTINGS_GONE
from anisoscope.utils.settings import flat
from findings.claims.claim_entries import CLAIMS, ENCODER, MODELS, PLAIN, Claim

NAME = "evidence.csv"
EARLY = 0.3  # fraction of training, as in the paper
CROSSED = "weight and data seeds are crossed, so runs are not independent"
UNFINISHED = "not measured to its last step"
ROOM = 0.9  # largest mean cosine of an input to which a block can still add
COLUMNS = ("claim", "model", "unit", "value", "error", "freedom", "n", "gain", "outside")
Rows = Iterator[dict[str, Any]]


def read_evidence(folder: pathlib.Path) -> pd.DataFrame:
    """Collect the evidence for every claim; read evidence.csv where there is no other table.

    Raises:
        UserError: no table of the folder has evidence on any claim.
    """
    runs = read_runs_with_kinds(folder)
    rows = [
        {"claim": name, "outside": ""} | row
        for name, claim in CLAIMS.items()
        for row in READERS[claim.table](folder, runs, claim)
    ]
    if rows:
        frame = pd.DataFrame(rows, columns=list(COLUMNS))
        return frame.sort_values(["claim", "model"], kind="stable")
    if not (folder / NAME).exists():
        raise UserError(
            f"{folder} contains no table with evidence on any claim; run --stages=train,measure there first"
        )
    return joined_files.read_csv(folder / NAME, "claim", "model", "unit", "outside")


def read_runs_with_kinds(folder: pathlib.Path) -> pd.DataFrame:
    """Read runs.csv with the kind and gain over unigram of each model; no rows if it is absent."""
    runs = pd.DataFrame(columns=["kind"])
    if (folder / on_disk.RUNS).exists():
        runs, _ = on_disk.read_runs(folder)
        refuse_outdated(folder, on_disk.RUNS, runs)
    if not {"objective", "model.mask", "train.seed"} <= {*runs}:
        return pd.DataFrame(columns=["kind", "condition"])
    pairs = zip(runs["objective"], runs["model.mask"], strict=True)
    kinds = np.array([MODELS.get(pair, "other") for pair in pairs], dtype=object)
    for setting in (name for name in PLAIN if name in runs):
        kinds[(runs[setting] != PLAIN[setting]).to_numpy()] = "other"
    # runs.csv has only the settings that differ between runs
    kinds[[not _is_plain(folder / run / "config.json") for run in runs["run"]]] = "other"
    gain = runs.get("test_gain_over_unigram", np.nan)
    return runs.assign(kind=kinds, gain=gain, outside=_why_not_independent(runs))


def _why_not_independent(runs: pd.DataFrame) -> pd.Series:
    """Return why a run is no independent sample of its condition; "" if it is."""
    seeds = [name for name in run_summaries.SEEDS[:2] if name in runs]
    reasons = pd.Series("", runs.index)
    for _, group in runs.groupby("condition"):
        if len(factors(group[seeds].to_numpy())) > 1:
            reasons[group.index] = CROSSED
    return reasons.mask(runs.get("unfinished", pd.Series(False, runs.index)), UNFINISHED)


def refuse_outdated(folder: pathlib.Path, table: str, runs: pd.DataFrame) -> None:
    """Raise UserError if tables of these runs have changed since `table` was written."""
    if why := on_disk.why_outdated(folder, table, _folders(folder, runs)):
        raise UserError(why)


def _folders(folder: pathlib.Path, runs: pd.DataFrame) -> on_disk.Folders:
    return {name: folder / name for name in runs.get("run", ())}


def _is_plain(path: pathlib.Path) -> bool:
    settings = flat(read_json(path, SETTINGS_GONE)) if path.exists() else {}
    return all(settings.get(name, value) == value for name, value in PLAIN.items())


def _row(run: Any, value: float) -> dict[str, Any]:
    about = {"model": run["condition"], "unit": run["run"], "outside": run["outside"]}
    return about | {"value": value, "gain": run["gain"]}


def from_runs(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Evaluate an expression in columns of runs.csv."""
    own = runs[runs["kind"].isin(claim.models)]
    expressions = {text: column_names(text) for text in (claim.quantity, *dict(claim.regime))}
    if own.empty or not expressions[claim.quantity] <= {*runs}:
        return
    found = {
        text: own[[*columns]].eval(text, engine="python")
        for text, columns in expressions.items()
        if columns <= {*runs}
    }
    reasons = own["outside"]
    for condition, reason in claim.regime:
        if condition in found:
            reasons = reasons.where((reasons != "") | found[condition], reason)
    about = own[["condition", "run", "gain", "outside"]].to_dict("records")
    for run, value, reason in zip(about, found[claim.quantity], reasons, strict=True):
        yield _row(run, value) | {"outside": reason}


def column_names(expression: str) -> set[str]:
    """List the columns that an expression reads."""
    return {*re.findall("[a-z_]+", expression)} - {"log"}


def from_pairs(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Subtract the encoder of the same seeds, whose condition differs only in the kind's name."""
    seeds = ["train.seed", "train.data_seed"]
    if not {claim.quantity, *seeds} <= {*runs}:
        return
    for condition, decoders in runs[runs["kind"] == "decoder"].groupby("condition", sort=False):
        names = {condition.replace("decoder", "encoder"), "_".join(ENCODER[::-1])} - {condition}
        encoders = runs[(runs["kind"] == "encoder") & runs["condition"].isin(names)]
        both = decoders.merge(encoders, on=seeds, suffixes=("", "_encoder"))
        for pair in both.to_dict("records"):
            yield _row(pair, pair[claim.quantity] - pair[f"{claim.quantity}_encoder"]) | {
                "model": f"{condition} less encoder",
                "gain": np.minimum(pair["gain"], pair["gain_encoder"]),  # NaN where one is
                "outside": pair["outside"] or pair["outside_encoder"],
            }


def over_models(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Correlate the conditions' means, as Fisher's z with the error 1/sqrt(n - 3)."""
    columns = claim.quantity.split(",")
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
    columns, path = claim.quantity.split(","), folder / "layers.csv"
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
    contrasts = on_disk.read_contrasts(folder, on_disk.LOSS_MATCHED)
    place = dict(zip(("setting", "before", "after", "held"), claim.contrast, strict=True))
    place |= {"quantity": claim.quantity, "positions": "all"}
    for column, value in place.items():
        contrasts = contrasts[contrasts[column] == value] if value else contrasts
    for row in contrasts.to_dict("records"):
        held = f" ({row['held']})" if len(contrasts) > 1 else ""
        yield {
            "model": f"{row['before']} → {row['after']}{held}",
            "unit": "contrast",
            "value": row["change"],
            "error": row["error"],
            "freedom": row["freedom"],
            "n": row["pairs"],
            "gain": np.nan if row["without"] else row["level"],  # a run has never learned
            # pairs of crossed seeds are more than their noise has degrees of freedom
            "outside": CROSSED if row["freedom"] < row["pairs"] - 1 else "",
        }


def from_tangents(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read tangents.csv: the early semi-NMF subspace of the largest rank, raw gradients.

    Energy of a random subspace of the whole space is k / D. Of one in the complement of a subspace
    with energy e it is c = (1 − e) k / (D − k) on average, so k / D is c / (1 − e + c).
    """
    path = folder / on_disk.TANGENTS
    if runs.empty or not path.exists():
        return
    refuse_outdated(folder, on_disk.TANGENTS, runs)
    tables = dict(tuple(joined_files.read_csv(path, "run").groupby("run")))
    least, most = on_disk.ENRICHMENT[0], on_disk.ENRICHMENT[-1]
    for run in runs[runs["kind"].isin(claim.models) & runs["run"].isin(tables)].to_dict("records"):
        table = tables[run["run"]].assign(
            random=lambda t: t["control_energy"] / (1 - t["energy"] + t["control_energy"]),
            ratio=lambda t: np.log2(t["energy"] / t["control_energy"]),
        )
        step = table["step"]
        over_layers = table.drop(columns="run").groupby("step").mean()
        first, last = over_layers.reindex([0]).iloc[0], over_layers.loc[step.max()]
        early = over_layers[(over_layers.index > 0) & (over_layers.index <= EARLY * step.max())]
        early = early["energy"].mean()
        value = {
            "energy-control": last["energy"] - last["control_energy"],
            "energy-random": last["energy"] - last["random"],
            "excess": last["excess"],
            "early-first": early - first["energy"],
            "late-first": last["energy"] - first["energy"],
            "early-late": early - last["energy"],
            "amplification": last["ratio"] - first["ratio"],
            "isoscore_gain-normal": last["isoscore_gain"] - last["isoscore_gain_normal"],
            "enrichment": last[most] - last[least],
        }[claim.quantity]
        yield _row(run, float(value))


def from_untrained(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read the last block, with a bidirectional mask and a bias on the embedding, by norm order.

    Biases that already bring the cosine of the input close to 1 are left out of its mean.
    """
    if not (path := folder / "seeds.nc").exists():
        return
    table = joined_files.read_table(path).isel(mask=0, embedding=0, target=0, block=-1)
    least, most = table.isel(relative_norm=0), table.isel(relative_norm=-1)
    added = table["cosine_out"] - table["cosine_in"]
    value = {
        "cosine_out-cosine_in": added.where(table["cosine_in"] <= ROOM).mean("relative_norm"),
        "without_bias": added.sel(relative_norm=0),
        "score_std": np.log2(most["score_std"] / least["score_std"]),
        "attention_entropy": least["attention_entropy"] - most["attention_entropy"],
    }[claim.quantity]
    for norm in table["norm_order"].values:
        yield from _by_seed(f"{norm}-LN block", value.sel(norm_order=norm))


def from_curved(folder: pathlib.Path, runs: pd.DataFrame, claim: Claim) -> Rows:
    """Read the seeds of the curved manifolds, means over manifolds and curvatures."""
    if not (path := folder / "measurements" / "seeds.nc").exists():
        return
    table = joined_files.read_table(path)
    share = np.log2(table["biased_normal_share"].sel(weighting="none"))
    value = {
        "slope": table["slope_normal_norm"] - table["slope_tangent_norm"],
        "biased": share.isel(bias=0) - share.isel(bias=-1),
    }[claim.quantity]
    yield from _by_seed("known manifolds", value.mean(("manifold", "curvature")))


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
