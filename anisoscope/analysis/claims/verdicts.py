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
ABOUT = ("experiment", "claim", "model", "paper", "mark", "quantity", "statistic")
COLUMNS = (
    *ABOUT,
    "threshold",
    "side",
    "effect",
    "low",
    "high",
    "n",
    "p",
    "p_holm",
    "p_project",
    "verdict",
    "reason",
)
CONTRAST = "primary contrast"  # in place of a paper
Folder = str | os.PathLike[str]


def verdicts(folders: Folder | Iterable[Folder]) -> pd.DataFrame:
    """A row for each claim and model of these experiments, and one for each of their primary
    contrasts.

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
    """Give the verdicts of these folders; UserError as `verdicts` a ValueError."""
    names = [path.resolve().name for path in paths]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"two folders are named {again[0]}: verdicts tell experiments apart by the names of folders"
        )
    claimed = [judged(evidence.read(path), name) for name, path in zip(names, paths, strict=True)]
    contrasts = [
        on_disk.read_primary(path).assign(experiment=name)
        for name, path in zip(names, paths, strict=True)
    ]
    whole, named = pd.concat(claimed, ignore_index=True), pd.concat(contrasts, ignore_index=True)
    whole["p_project"], named = corrected(whole, named)
    whole["p_holm"] = np.nan
    for name in names:
        own = whole["experiment"] == name
        whole.loc[own, "p_holm"], _ = corrected(whole[own], named[named["experiment"] == name])
    whole["verdict"] = [_verdict(row) for row in whole.itertuples()]
    undecided = (whole["verdict"] == INCONCLUSIVE) & (whole["reason"] == "")
    held = (whole["low"] <= whole["threshold"]) & (whole["threshold"] <= whole["high"])
    whole.loc[undecided, "reason"] = np.where(
        held[undecided], TOO_WIDE, f"{TOO_WIDE} once corrected"
    )
    whole = whole[list(COLUMNS)]
    return pd.concat([whole, of_contrasts(named)], ignore_index=True) if len(named) else whole


def judged(given: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Effect, interval and p of each claim and model; no p, and the reason, where nothing is
    tested.
    """
    rows = []
    for (name, model), group in given.groupby(["claim", "model"], sort=False):
        claim = CLAIMS[name]
        about = {"experiment": experiment, "claim": name, "model": model} | claim._asdict()
        about |= {"side": "above" if claim.above else "below"}
        effect, error, freedom, n = summary(group)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.float64(abs(effect - claim.threshold)) / error
        half = error * stats.t.ppf(0.5 + LEVEL / 2, freedom) if freedom >= 1 else np.nan
        reason = _why_not(group, claim, n, effect)
        p = 1.0 if effect == claim.threshold else 2 * stats.t.sf(t, freedom)
        p = np.nan if reason or not np.isfinite(error) else p
        effect, low, high = ends = effect, effect - half, effect + half
        if claim.table == "over_models":
            effect, low, high = np.tanh(ends)
        rows.append(
            about | {"effect": effect, "low": low, "high": high, "n": n, "p": p, "reason": reason}
        )
    return pd.DataFrame(
        rows, columns=[name for name in COLUMNS if name not in ("p_holm", "p_project", "verdict")]
    )


def summary(group: pd.DataFrame) -> tuple[float, float, float, int]:
    """Effect, standard error, degrees of freedom and n: of the seeds, or what the table itself
    has.
    """
    values = group["value"][np.isfinite(group["value"])].to_numpy(float)
    if "error" in group and group["n"].notna().any():
        row = group.iloc[0]
        return float(row["value"]), float(row["error"]), float(row["freedom"]), int(row["n"])
    n = len(values)
    error = values.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return (values.mean() if n else np.nan), error, n - 1, n


def _why_not(group: pd.DataFrame, claim: Claim, n: int, effect: float) -> str:
    if n == 0 or (n >= claim.seeds and not np.isfinite(effect)):
        return "no value"
    if n < claim.seeds:
        return f"too few {'models' if claim.table == 'over_models' else 'seeds'} ({n} of {claim.seeds})"
    if claim.learned and not (least := group["gain"].min(skipna=False)) >= LEARNED:
        return f"has not learned in every seed (context gain {least:.2f} bits at least, {LEARNED:g} asked)"
    outside = [str(one) for one in group["outside"].dropna() if one]
    return f"outside the claim's regime: {outside[0]}" if outside else ""


def corrected(claimed: pd.DataFrame, named: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Holm's p of the claims; the contrasts with theirs as p_project and p_margin_project."""
    later = claimed["paper"].isin(LATER).to_numpy()
    asked = claimed["p"].notna().to_numpy() & ~later
    stated = named["margin"].notna().to_numpy(bool)
    p = np.concatenate([claimed.loc[asked, "p"], named["p"], named.loc[stated, "p_margin"]]).astype(
        float
    )
    parts = np.split(holm_of(p, asked.sum() + len(named)), np.cumsum([asked.sum(), len(named)]))
    of_claims, of_margins = np.full(len(claimed), np.nan), np.full(len(named), np.nan)
    of_claims[asked], of_margins[stated] = parts[0], parts[2]
    of_claims[later] = holm(claimed.loc[later, "p"])
    return of_claims, named.assign(p_project=parts[1], p_margin_project=of_margins)


def _verdict(row) -> str:
    if not row.p_project < 1 - LEVEL:
        return INCONCLUSIVE
    return REPRODUCED if (row.effect > row.threshold) == (row.side == "above") else CONTRADICTED


def of_contrasts(named: pd.DataFrame) -> pd.DataFrame:
    """Primary contrasts in the columns of claims: what each says where the correction is over the
    whole project.
    """
    columns = ["change", "p_project", "p_margin_project"]
    rows = named.assign(
        claim=named["name"], model=named["before"] + " → " + named["after"], paper=CONTRAST, mark="this project",
        statistic=[f"change, {primary.WHERE[at]}" for at in named["at"]], threshold=0.0, side="either",
        effect=named["change"], n=named["pairs"], reason=[f"within its experiment: {one}" for one in named["verdict"]],
        verdict=[primary.verdict(*row) for row in named[columns].itertuples(index=False)],
    )  # fmt: skip
    return rows[list(COLUMNS)]


def write(folder: pathlib.Path) -> list[pathlib.Path]:
    """evidence.csv, verdicts.csv and verdicts.md of one experiment, in its folder."""
    frame = judge([folder])
    joined_files.write_csv(evidence.read(folder), folder / evidence.NAME)
    joined_files.write_csv(frame, folder / "verdicts.csv")
    joined_files.files.write(folder / "verdicts.md", "\n".join(format_lines(frame)) + "\n")
    return [folder / name for name in (evidence.NAME, "verdicts.csv", "verdicts.md")]


def format_lines(frame: pd.DataFrame) -> list[str]:
    """Markdown: a table of the claims by paper, and one of the primary contrasts."""
    lines = ["# Verdicts", ""]
    for paper, rows in frame.groupby("paper", sort=False):
        lines += [
            f"## {paper}",
            "",
            "| claim | experiment | model | effect | n | p | verdict |",
            "| --- " * 7 + "|",
        ]
        for row in rows.itertuples():
            claim = (
                CLAIMS[row.claim].wording if paper != CONTRAST else f"{row.quantity} ({row.claim})"
            )
            why = f" ({row.reason})" if row.reason else ""
            interval = (
                f" [{primary.number(row.low)}, {primary.number(row.high)}]"
                if np.isfinite(row.low)
                else ""
            )
            p = f"{row.p_project:.2g}" if np.isfinite(row.p_project) else ""
            effect = primary.number(row.effect) + interval
            cells = (claim, row.experiment, row.model, effect, f"{row.n:g}", p, row.verdict + why)
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    said = (
        "Effect with its 95 % interval, not corrected; p after Holm over all prespecified tests read together; "
        "claims of later papers than the three over one another."
    )
    return [*lines, said]
