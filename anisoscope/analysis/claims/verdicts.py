"""Verdicts: what each experiment says of each claim, corrected for all prespecified tests of all
folders together.

A claim says that a number lies above (or below) a threshold. Its test is Student's over the seeds
of a model, two-sided, of the number being the threshold; a contrast or a correlation brings its own
error. Holm's correction is over all tests of claims and all primary contrasts of all folders
(`p_project`), and over those of each folder alone (`p_holm`). Of a primary contrast no change and a
change as large as the margin are two tests, of which one is true at most. Claims of later papers
than the three are corrected apart from all else, over one another.

reproduced: p_project below 0.05, and the number on the claimed side of the threshold; contradicted:
on the other side; inconclusive otherwise, and where there are too few seeds, where a model has not
learned or lies outside of the claim's
regime: then nothing is tested. The intervals are not corrected.
"""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import on_disk, primary
from anisoscope.analysis.claims import evidence
from anisoscope.analysis.claims.claim_entries import CLAIMS, LATER, LEARNED, Claim
from anisoscope.measurement.intervals import LEVEL
from anisoscope.results import joined_files
from anisoscope.results.holm import holm, holm_of
from anisoscope.utils.errors import UserError, as_value_error

REPRODUCED, CONTRADICTED, INCONCLUSIVE = "reproduced", "contradicted", "inconclusive"
TOO_WIDE = "interval too wide"
COLUMNS = (
    *("experiment", "claim", "model", "paper", "mark", "quantity", "statistic", "threshold"),
    *("side", "effect", "low", "high", "n", "p", "p_holm", "p_project", "verdict", "reason"),
)
CONTRAST = "primary contrast"  # in place of a paper
Folder = str | os.PathLike[str]


def verdicts(folders: Folder | Iterable[Folder]) -> pd.DataFrame:
    """Judge every claim and primary contrast of these experiments, one row for each.

    Args:
        folders: of experiments, as runs/mask_ablations, with the tables that the stage `measure`
            writes.

    Returns:
        A DataFrame with claim, model, effect with its 95 % interval, n, p, and p corrected by Holm
        over all tests (claims of later papers than the three: over one another).

    Raises:
        ValueError: a folder holds no table that speaks to a claim, or two folders have one name.
    """
    if isinstance(folders, str | os.PathLike):
        folders = [folders]
    with as_value_error():
        return judge([pathlib.Path(folder) for folder in folders])


def judge(paths: list[pathlib.Path]) -> pd.DataFrame:
    """Do as `verdicts`; raise UserError in place of ValueError."""
    names = [path.resolve().name for path in paths]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"two folders are named {again[0]}: verdicts tell experiments apart by their names"
        )
    folders = dict(zip(names, paths, strict=True))
    claims = pd.concat(
        [tested_claims(evidence.read(path), name) for name, path in folders.items()],
        ignore_index=True,
    )
    contrasts = pd.concat(
        [on_disk.read_primary(path).assign(experiment=name) for name, path in folders.items()],
        ignore_index=True,
    )
    claims["p_project"], contrasts = corrected(claims, contrasts)
    claims["p_holm"] = np.nan
    for name in names:
        own = claims["experiment"] == name
        claims.loc[own, "p_holm"], _ = corrected(
            claims[own], contrasts[contrasts["experiment"] == name]
        )
    claimed_side = (claims["effect"] > claims["threshold"]) == (claims["side"] == "above")
    claims["verdict"] = np.where(
        claims["p_project"] < 1 - LEVEL,
        np.where(claimed_side, REPRODUCED, CONTRADICTED),
        INCONCLUSIVE,
    )
    undecided = (claims["verdict"] == INCONCLUSIVE) & (claims["reason"] == "")
    holds = claims["threshold"].between(claims["low"], claims["high"])
    reason = np.where(holds, TOO_WIDE, f"{TOO_WIDE} once corrected")
    claims["reason"] = claims["reason"].where(~undecided, reason)
    claims = claims[list(COLUMNS)]
    if not len(contrasts):
        return claims
    return pd.concat([claims, contrast_rows(contrasts)], ignore_index=True)


def tested_claims(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return effect, interval and p of each claim and model; no p where nothing is tested."""
    tests = []
    for (name, model), group in rows.groupby(["claim", "model"], sort=False):
        claim = CLAIMS[name]
        effect, error, freedom, n = effect_of(group)
        reason = why_untested(group, claim, n, effect)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.float64(abs(effect - claim.threshold)) / error
        p = 1.0 if effect == claim.threshold else 2 * stats.t.sf(t, freedom)
        half = error * stats.t.ppf(0.5 + LEVEL / 2, freedom) if freedom >= 1 else np.nan
        ends = np.array([effect, effect - half, effect + half])
        if claim.table == "over_models":
            ends = np.tanh(ends)
        tests.append(
            claim._asdict()
            | {"experiment": experiment, "claim": name, "model": model}
            | dict(zip(("effect", "low", "high"), ends, strict=True))
            | {"side": "above" if claim.above else "below", "n": n, "reason": reason}
            | {"p": np.nan if reason or not np.isfinite(error) else p}
        )
    corrections = ("p_holm", "p_project", "verdict")
    return pd.DataFrame(tests, columns=[name for name in COLUMNS if name not in corrections])


def effect_of(group: pd.DataFrame) -> tuple[float, float, float, int]:
    """Return effect, standard error, degrees of freedom and n: over seeds, or the table's own."""
    if group["n"].notna().any():
        row = group.iloc[0]
        return float(row["value"]), float(row["error"]), float(row["freedom"]), int(row["n"])
    values = group["value"][np.isfinite(group["value"])].to_numpy(float)
    n = len(values)
    error = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return (values.mean() if n else np.nan), error, n - 1, n


def why_untested(group: pd.DataFrame, claim: Claim, n: int, effect: float) -> str:
    """Say why nothing is tested; "" where something is."""
    if n == 0 or (n >= claim.seeds and not np.isfinite(effect)):
        return "no value"
    if n < claim.seeds:
        units = "models" if claim.table == "over_models" else "seeds"
        return f"too few {units} ({n} of {claim.seeds})"
    least = group["gain"].min(skipna=False)
    if claim.learned and not least >= LEARNED:
        return f"has not learned in every seed (context gain {least:.2f} bits at least, {LEARNED:g} asked)"
    outside = [reason for reason in group["outside"].dropna() if reason]
    return f"outside the claim's regime: {outside[0]}" if outside else ""


def corrected(claims: pd.DataFrame, contrasts: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Return Holm's p of the claims, and the contrasts with p_project and p_margin_project."""
    later = claims["paper"].isin(LATER).to_numpy()
    tested = claims["p"].notna().to_numpy() & ~later
    stated = contrasts["margin"].notna().to_numpy(bool)
    parts = claims.loc[tested, "p"], contrasts["p"], contrasts.loc[stated, "p_margin"]
    p = holm_of(np.concatenate(parts).astype(float), tested.sum() + len(contrasts))
    of_claims, margins = np.full(len(claims), np.nan), np.full(len(contrasts), np.nan)
    of_claims[tested], changes, margins[stated] = np.split(
        p, np.cumsum([tested.sum(), len(contrasts)])
    )
    of_claims[later] = holm(claims.loc[later, "p"])
    return of_claims, contrasts.assign(p_project=changes, p_margin_project=margins)


def contrast_rows(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Put primary contrasts into the columns of claims, corrected over the whole project."""
    p = contrasts[["change", "p_project", "p_margin_project"]]
    rows = contrasts.assign(
        claim=contrasts["name"],
        model=contrasts["before"] + " → " + contrasts["after"],
        paper=CONTRAST,
        mark="this project",
        statistic=[f"change, {primary.WHERE[at]}" for at in contrasts["at"]],
        threshold=0.0,
        side="either",
        effect=contrasts["change"],
        n=contrasts["pairs"],
        reason="within its experiment: " + contrasts["verdict"],
        verdict=[primary.verdict(*row) for row in p.itertuples(index=False)],
    )
    return rows[list(COLUMNS)]


def write(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write evidence.csv, verdicts.csv and verdicts.md of one experiment into its folder."""
    frame = judge([folder])
    joined_files.write_csv(evidence.read(folder), folder / evidence.NAME)
    joined_files.write_csv(frame, folder / "verdicts.csv")
    joined_files.files.write(folder / "verdicts.md", "\n".join(format_lines(frame)) + "\n")
    return [folder / name for name in (evidence.NAME, "verdicts.csv", "verdicts.md")]


def format_lines(frame: pd.DataFrame) -> list[str]:
    """Format as Markdown: a table of the claims by paper, and one of the primary contrasts."""
    number, lines = primary.number, ["# Verdicts", ""]
    head = ["| claim | experiment | model | effect | n | p | verdict |", "| --- " * 7 + "|"]
    for paper, rows in frame.groupby("paper", sort=False):
        lines += [f"## {paper}", "", *head]
        for row in rows.itertuples():
            cells = (
                CLAIMS[row.claim].wording if paper != CONTRAST else f"{row.quantity} ({row.claim})",
                row.experiment,
                row.model,
                number(row.effect)
                + (f" [{number(row.low)}, {number(row.high)}]" if np.isfinite(row.low) else ""),
                f"{row.n:g}",
                f"{row.p_project:.2g}" if np.isfinite(row.p_project) else "",
                row.verdict + (f" ({row.reason})" if row.reason else ""),
            )
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    note = (
        "Effect with its 95 % interval, not corrected; p after Holm over all prespecified tests read together; "
        "claims of later papers than the three over one another."
    )
    return [*lines, note]
