"""What the tables in an experiment's folder say to each claim: a number for each model and seed,
nothing judged yet.

A row has a claim, a model (a condition of the experiment), its seed, the number, and the context
gain in bits. Where a table has one number with an error in place of one per seed, as a contrast or
a correlation, `error`, `freedom` and `n` say so. A folder that holds evidence.csv and no other
table is taken by its word.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import on_disk
from anisoscope.analysis.claims.claim_entries import CLAIMS, ENCODER, MODELS, PLAIN, Claim
from anisoscope.analysis.correlations import correlate
from anisoscope.results import joined_files
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.folder import SETTINGS_GONE
from anisoscope.utils.settings import flat

NAME = "evidence.csv"
COLUMNS = ("claim", "model", "unit", "value", "error", "freedom", "n", "gain", "outside")
Rows = Iterator[dict[str, Any]]
MATCHED = {  # of a contrast: the setting, its ends, and what is held; None: whatever is
    "mask_makes_growth": ("model.mask", "causal", "bidirectional", "masked"),
    "objective_makes_growth": ("objective", "next", "masked", "causal"),
    "common_query_makes_anisotropy": (
        "model.centre_queries",
        "no centre_queries",
        "centre_queries",
        None,
    ),
}


def read(folder: pathlib.Path) -> pd.DataFrame:
    """Of every claim that the folder's tables speak to; UserError, one line, where there is
    none.
    """
    rows = []
    for name, claim in CLAIMS.items():
        rows += [
            {"claim": name, "outside": ""} | row
            for row in READERS[claim.table](folder, name, claim)
        ]
    if not rows and (folder / NAME).exists():
        return _by_its_word(folder / NAME)
    if not rows:
        raise UserError(
            f"{folder} holds no table that speaks to a claim; run --stages=train,measure there first"
        )
    return pd.DataFrame(rows, columns=list(COLUMNS)).sort_values(["claim", "model"], kind="stable")


def _by_its_word(path: pathlib.Path) -> pd.DataFrame:
    texts = dict.fromkeys(("claim", "model", "unit", "outside"), str)
    table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    if list(table) != list(COLUMNS) or (unknown := sorted({*table["claim"]} - {*CLAIMS})):
        what = (
            f"a claim that is not known, {unknown[0]!r}"
            if list(table) == list(COLUMNS)
            else "other columns"
        )
        raise UserError(
            f"{path} has {what}; --stages=verdicts, where its tables are, writes it again"
        )
    return table


def rows_of_runs(folder: pathlib.Path, *columns: str) -> pd.DataFrame | None:
    """runs.csv with the kind of each model; None where it is not there or lacks a column."""
    if not (folder / "runs.csv").exists():
        return None
    rows, _ = on_disk.read_runs(folder)
    if not {"objective", "model.mask", "train.seed", *columns} <= {*rows}:
        return None
    pairs = zip(rows["objective"], rows["model.mask"], strict=True)
    kinds = np.array([MODELS.get(pair, "other") for pair in pairs], dtype=object)
    for setting in (one for one in PLAIN if one in rows):
        kinds[(rows[setting] != PLAIN[setting]).to_numpy()] = "other"
    kinds[[not _is_plain(folder / run / "config.json") for run in rows["run"]]] = "other"
    return rows.assign(kind=kinds, gain=rows.get("test_context_gain", np.nan))


def _is_plain(path: pathlib.Path) -> bool:
    """Whether a run's settings, where they are there, are the papers': runs.csv has those alone
    that differ.
    """
    settings = flat(read_json(path, SETTINGS_GONE)) if path.exists() else {}
    return all(settings.get(name, value) == value for name, value in PLAIN.items())


def of_runs(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    columns = claim.quantity.split(" - ")  # of two, the first less the second
    rows = rows_of_runs(folder, *columns)
    if rows is None:
        return
    for row in rows[rows["kind"].isin(claim.models)].to_dict("records"):
        value = row[columns[0]] - sum(row[other] for other in columns[1:])
        yield _of_run(row, value) | {"outside": _outside(row, claim)}


def _of_run(row: Any, value: float) -> dict[str, Any]:
    return {"model": row["condition"], "unit": row["run"], "value": value, "gain": row["gain"]}


def _outside(row: dict[str, Any], claim: Claim) -> str:
    columns, least, most, words = claim.regime or ("", -np.inf, np.inf, "")
    names = columns.split(" + ")
    return (
        words
        if {*names} <= {*row} and not least <= sum(row[name] for name in names) <= most
        else ""
    )


def of_pairs(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    """Decoder less encoder of the same seeds, where the names of conditions differ in the kind
    alone.
    """
    seeds = ["train.seed", "train.data_seed"]
    rows = rows_of_runs(folder, claim.quantity, *seeds)
    if rows is None:
        return
    for condition, decoders in rows[rows["kind"] == "decoder"].groupby("condition", sort=False):
        wanted = {condition.replace("decoder", "encoder"), "_".join(ENCODER[::-1])} - {condition}
        encoders = rows[(rows["kind"] == "encoder") & rows["condition"].isin(wanted)]
        both = decoders.merge(encoders, on=seeds, suffixes=("", "_of_encoder"))
        for row in both.to_dict("records"):
            about = {
                "model": f"{condition} less encoder",
                "gain": min(row["gain"], row["gain_of_encoder"]),
            }
            yield _of_run(row, row[claim.quantity] - row[f"{claim.quantity}_of_encoder"]) | about


def over_models(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    """Fisher's z of r over conditions, 1/sqrt(n - 3) as its error, so that no r is judged by its
    skewed scatter.
    """
    one, other = claim.quantity.split(",")
    rows = rows_of_runs(folder, one, other)
    if rows is None or rows["condition"].nunique() < 2:
        return
    rows = rows[np.isfinite(rows[[one, other]]).all(axis=1)]
    means = rows.groupby("condition")[[one, other]].mean()
    r = correlate(means[one].values, means[other].values).pearson
    error = (len(means) - 3) ** -0.5 if len(means) > 3 else np.nan
    yield {
        **{"model": "over models", "unit": "z of r", "value": np.arctanh(r)},
        **{"error": error, "freedom": np.inf, "n": len(means)},
        "gain": rows["gain"].min(skipna=False),  # of the seed that has learned least
    }


def over_layers(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    rows, one_and_other = rows_of_runs(folder), claim.quantity.split(",")
    if rows is None or not (folder / "layers.csv").exists():
        return
    texts = {"run": str, "condition": str}
    layers = pd.read_csv(folder / "layers.csv", dtype=texts, keep_default_na=False, na_values=[""])
    if not {*one_and_other} <= {*layers}:
        return
    about = rows.set_index("run", drop=False)
    for run, own in layers[layers["positions"] == "all"].groupby("run", sort=False):
        if about.loc[run, "kind"] in claim.models:
            rho = stats.spearmanr(*(own[column] for column in one_and_other)).statistic
            yield _of_run(about.loc[run], rho)


def of_matched(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    path = folder / "contrasts_loss_matched.csv"
    if not path.exists():
        return
    rows = pd.read_csv(
        path, keep_default_na=False, na_values={"change": [""], "error": [""], "level": [""]}
    )
    where = dict(zip(("setting", "before", "after", "held"), MATCHED[name], strict=True))
    where = {name: value for name, value in where.items() if value is not None}
    where |= {"quantity": claim.quantity, "positions": "all"}
    records = rows[(rows[list(where)] == pd.Series(where)).all(axis=1)].to_dict("records")
    if records and _of_other_tables(folder):
        print(
            f"{path} is of other tables than now, and says nothing of {name}: --stages=matched reads them again"
        )
        return
    for row in records:
        held = f" ({row['held']})" if len(records) > 1 else ""
        yield {
            **{
                "model": f"{row['before']} → {row['after']}{held}",
                "unit": "contrast",
                "value": row["change"],
            },
            **{
                "error": row["error"],
                "freedom": row["freedom"],
                "n": row["pairs"],
                "gain": row["level"],
            },
        }


def _of_other_tables(folder: pathlib.Path) -> bool:
    """Whether loss-matched contrasts were read from other tables than lie there now; not where
    there is none.
    """
    names = on_disk.read_runs(folder)[0]["run"] if (folder / "runs.csv").exists() else ()
    folders = {run: folder / run for run in names}
    there = bool(folders) and all((path / "results.nc").exists() for path in folders.values())
    return there and on_disk.digests(folders) != on_disk.read_digests(folder)


def of_tangents(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    """The early semi-NMF subspace of the largest rank, raw gradients, as the primary cells have
    it.
    """
    rows = rows_of_runs(folder)
    if rows is None or not (folder / on_disk.TANGENTS).exists():
        return
    tables = dict(tuple(pd.read_csv(folder / on_disk.TANGENTS, dtype={"run": str}).groupby("run")))
    for row in rows[rows["kind"].isin(claim.models) & rows["run"].isin(tables)].to_dict("records"):
        table = tables[row["run"]].set_index(["layer", "step"]).sort_index()
        last = table.xs(table.index.get_level_values("step").max(), level="step")
        yield _of_run(
            row, float(TANGENTS[claim.quantity](last, table.groupby("layer").max()).mean())
        )


# by layer, of the last step and the largest
TANGENTS: dict[str, Callable[[pd.DataFrame, pd.DataFrame], pd.Series]] = {
    "energy-control": lambda last, largest: last["energy"] - last["control_energy"],
    "excess": lambda last, largest: last["excess"],
    "energy-late": lambda last, largest: largest["energy"] - last["energy"],
    "isoscore_gain-normal": lambda last, largest: (
        last["isoscore_gain"] - last["isoscore_gain_normal"]
    ),
    "enrichment": lambda last, largest: last[on_disk.ENRICHMENT[-1]] - last[on_disk.ENRICHMENT[0]],
}


def of_untrained(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    """The last block under a bidirectional mask, a bias on the embedding, for each place of
    LayerNorm.
    """
    if not (path := folder / "seeds.nc").exists():
        return
    table = joined_files.read_table(path).isel(mask=0, embedding=0, target=0, block=-1)
    least, most = table.isel(relative_norm=0), table.isel(relative_norm=-1)
    value = {
        "cosine_out-cosine_in": (table["cosine_out"] - table["cosine_in"]).mean("relative_norm"),
        "score_std": np.log2(most["score_std"] / least["score_std"]),
        "attention_entropy": least["attention_entropy"] - most["attention_entropy"],
    }[claim.quantity]
    for norm in table["norm_order"].values:
        for seed in table["seed"].values:
            number = float(value.sel(norm_order=norm, seed=seed))
            yield {"model": f"{norm}-LN block", "unit": f"seed {seed}", "value": number}


def of_curved(folder: pathlib.Path, name: str, claim: Claim) -> Rows:
    if not (path := folder / "measurements" / "seeds.nc").exists():
        return
    table = joined_files.read_table(path)
    share = np.log2(table["biased_normal_share"].sel(weighting="none"))
    value = {
        "slope": table["slope_normal_norm"] - table["slope_tangent_norm"],
        "biased": share.isel(bias=0) - share.isel(bias=-1),
    }[claim.quantity].mean(("manifold", "curvature"))
    for seed in table["seed"].values:
        yield {
            "model": "known manifolds",
            "unit": f"seed {seed}",
            "value": float(value.sel(seed=seed)),
        }


READERS: dict[str, Callable[[pathlib.Path, str, Claim], Rows]] = {
    "runs": of_runs,
    "pairs": of_pairs,
    "over_models": over_models,
    "layers": over_layers,
    "matched": of_matched,
    "tangents": of_tangents,
    "untrained": of_untrained,
    "curved": of_curved,
}
