"""Judge what each experiment says about each claim.

A claim says that an effect is positive. It is *reproduced* if its 95 % interval lies above the
smallest effect of interest, *contradicted* if it lies below the negative of that, *equivalent to
none* if it lies between the two, and otherwise *inconclusive*. A claim of absence (flat, stable,
linear) is reproduced by an interval between the two, and contradicted by one beyond either.

For a bounded or selected number the interval is the range of the seeds, which contains the median
of all seeds with a probability of 1 − 2^(1 − n). p tests that the effect equals ± the smallest one,
whichever is nearer. Holm's method corrects p within the experiment (`p_holm`), and over all claims
and primary contrasts together (`p_project`). A primary contrast has two tests: no change, and a
change as large as the margin. At most one of these is true (docs/explanation/statistics.md).
"""

import os
import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import on_disk, primary
from anisoscope.measurement.intervals import LEVEL, holm_of
from anisoscope.results import joined_files
from anisoscope.utils.errors import UserError, as_value_error
from findings.claims import evidence
from findings.claims.claim_entries import CLAIMS, LEARNED, Claim

REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
EQUIVALENT, INCONCLUSIVE = "equivalent to none", "inconclusive"
VERDICTS = (REPRODUCED, CONTRADICTED, EQUIVALENT, INCONCLUSIVE)
TOO_WIDE, CONSTANT = "interval too wide", "the seeds have no variance, so no test applies"
STUDENT, NORMAL = "Student", "normal distribution"
SIGN, FISHER = "sign test, range of the seeds", "Fisher's z"
ROUNDING = 1e-9  # an end nearer to a bound than this lies on it
COLUMNS = (
    *("experiment", "claim", "model", "paper", "mark", "quantity", "statistic", "smallest"),
    *("effect", "low", "high", "n", "test", "p", "p_holm", "p_project", "verdict", "reason"),
)
CONTRAST = "primary contrast"  # its entry in the column paper
Folder = str | os.PathLike[str]


def verdicts(
    folders: Folder | Iterable[Folder], duplicates: Iterable[tuple[str, str]] = ()
) -> pd.DataFrame:
    """Judge every claim and primary contrast of these experiments, one row for each.

    Args:
        folders: folders of experiments, such as runs/mask_ablations, with the tables that the stage
            `measure` writes.
        duplicates: (experiment, model) pairs to leave out because another folder contains the same
            runs.

    Returns:
        A DataFrame with claim, model, effect with its 95 % interval, the smallest effect of
        interest, n, p, p corrected by Holm within the experiment and over all, and the verdict.

    Raises:
        ValueError: a folder contains no table with evidence on any claim, or two folders have one name.
    """
    if isinstance(folders, str | os.PathLike):
        folders = [folders]
    with as_value_error():
        return judge([pathlib.Path(folder) for folder in folders], duplicates)


def judge(paths: list[pathlib.Path], duplicates: Iterable[tuple[str, str]] = ()) -> pd.DataFrame:
    """Judge as `verdicts` does, but raise UserError instead of ValueError."""
    names, duplicates = [path.resolve().name for path in paths], {*map(tuple, duplicates)}
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"two folders are named {again[0]}: verdicts tell experiments apart by their names"
        )
    claims, contrasts = [], []
    for name, path in zip(names, paths, strict=True):
        rows = evidence.read_evidence(path)
        rows = rows[[(name, model) not in duplicates for model in rows["model"]]]
        judged = judge_claims(rows, name)
        named = on_disk.read_primary(path).assign(experiment=name)
        p_holm, named = correct_p(judged["p"], named)
        claims.append(judged.assign(p_holm=p_holm))
        contrasts.append(named.assign(p_holm=named["p_project"]))
    claims = pd.concat(claims, ignore_index=True)
    claims["p_project"], contrasts = correct_p(claims["p"], pd.concat(contrasts, ignore_index=True))
    claims = claims[list(COLUMNS)]
    if not len(contrasts):
        return claims
    return pd.concat([claims, contrast_rows(contrasts)], ignore_index=True)


def judge_interval(low: float, high: float, smallest: float, absence: bool) -> str:
    """Judge an interval by the smallest effect of interest; an end on the bound decides nothing."""
    within, beyond = smallest - ROUNDING, smallest + ROUNDING
    if -within < low and high < within:
        return REPRODUCED if absence else EQUIVALENT
    if low > beyond:
        return CONTRADICTED if absence else REPRODUCED
    return CONTRADICTED if high < -beyond else INCONCLUSIVE


def judge_claims(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return effect, interval, p and verdict of each claim and model."""
    tests = []
    for (name, model), group in rows.groupby(["claim", "model"], sort=False):
        claim = CLAIMS[name]
        estimate = estimate_effect(group, claim)
        ends = estimate["low"], estimate["high"]
        if reason := why_untested(group, claim, estimate):
            estimate["p"] = np.nan
        found = INCONCLUSIVE if reason else judge_interval(*ends, claim.smallest, claim.absence)
        about = {"experiment": experiment, "claim": name, "model": model, "verdict": found}
        about["reason"] = reason or TOO_WIDE * (found == INCONCLUSIVE)
        tests.append(claim._asdict() | estimate | about)
    frame = pd.DataFrame(tests, columns=list(COLUMNS))
    return frame.drop(columns=["p_holm", "p_project"])


def estimate_effect(group: pd.DataFrame, claim: Claim) -> dict[str, float | str]:
    """Return effect, low, high, n, test and p: over seeds, or with the table's own error."""
    values = claim.sign * group["value"][np.isfinite(group["value"])].to_numpy(float)
    n, smallest, own = len(values), claim.smallest, group["n"].notna().any()
    if claim.bounded and n and not own:
        effect, low, high = np.median(values), values.min(), values.max()
        beyond = (values > np.copysign(smallest, effect)).sum()
        p = min(1.0, 2 * stats.binom.cdf(min(beyond, n - beyond), n, 0.5))
        return {"effect": effect, "low": low, "high": high, "n": n, "test": SIGN, "p": p}
    effect, freedom = values.mean() if n else np.nan, n - 1
    error = stats.sem(values) if n > 1 else np.nan
    if own:
        error, freedom, n = group[["error", "freedom", "n"]].iloc[0]
    test, scale = NORMAL if np.isinf(freedom) else STUDENT, lambda x: x
    if claim.table == "over_models":
        test, scale, smallest = FISHER, np.tanh, np.arctanh(smallest)
    half = error * stats.t.ppf(0.5 + LEVEL / 2, freedom) if error > 0 else np.nan
    p = 2 * stats.t.sf(abs(abs(effect) - smallest) / error, freedom) if error > 0 else np.nan
    ends = scale(np.array([effect, effect - half, effect + half]))
    names, found = ("effect", "low", "high", "n", "test", "p"), (*ends, int(n), test, p)
    return dict(zip(names, found, strict=True))


def why_untested(group: pd.DataFrame, claim: Claim, estimate: dict[str, float | str]) -> str:
    """Return why a claim is not tested; "" if it is."""
    n = estimate["n"]
    if n == 0 or (n >= claim.seeds and not np.isfinite(estimate["effect"])):
        return "no value"
    if n < claim.seeds:
        units = "models" if claim.table == "over_models" else "seeds"
        return f"too few {units} ({n} of {claim.seeds})"
    least = group["gain"].min(skipna=False)
    if claim.learned and not least >= LEARNED:
        return f"has not learned in every seed (lowest gain over unigram {least:.2f} bits, {LEARNED:g} required)"
    if outside := [reason for reason in group["outside"].dropna() if reason]:
        regime = outside[0] not in (evidence.CROSSED, evidence.UNFINISHED)
        return "outside the claim's regime: " * regime + outside[0]
    return "" if np.isfinite(estimate["p"]) else CONSTANT


def correct_p(p: pd.Series, contrasts: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame]:
    """Return Holm's p of the claims, and the contrasts with p_project and p_margin_project."""
    tested, stated = p.notna().to_numpy(), contrasts["margin"].notna().to_numpy(bool)
    parts = p[tested], contrasts["p"], contrasts.loc[stated, "p_margin"]
    whole = holm_of(np.concatenate(parts).astype(float), tested.sum() + len(contrasts))
    claims, margins = np.full(len(p), np.nan), np.full(len(contrasts), np.nan)
    claims[tested], changes, margins[stated] = np.split(
        whole, np.cumsum([tested.sum(), len(contrasts)])
    )
    return claims, contrasts.assign(p_project=changes, p_margin_project=margins)


def contrast_rows(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Put primary contrasts into the columns of claims, corrected over the whole project."""
    p = contrasts[["change", "p_project", "p_margin_project"]]
    rows = contrasts.assign(
        claim=contrasts["name"],
        model=contrasts["before"] + " → " + contrasts["after"],
        paper=CONTRAST,
        mark="this project",
        statistic=[f"change, {primary.WHERE[at]}" for at in contrasts["at"]],
        smallest=contrasts["margin"],
        effect=contrasts["change"],
        n=contrasts["pairs"],
        test=STUDENT,
        reason="among the primary contrasts: " + contrasts["verdict"],
        verdict=[primary.judge_contrast(*row) for row in p.itertuples(index=False)],
    )
    return rows[list(COLUMNS)]


def write_verdict_tables(folder: pathlib.Path) -> list[pathlib.Path]:
    """Write evidence.csv and verdicts.csv of one experiment into its folder."""
    paths = [folder / evidence.NAME, folder / "verdicts.csv"]
    joined_files.write_csv(evidence.read_evidence(folder), paths[0])
    joined_files.write_csv(judge([folder]), paths[1])
    return paths
