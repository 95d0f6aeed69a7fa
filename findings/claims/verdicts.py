"""Judge what each experiment says about each claim. findings/rules.md has the rules in words."""

import pathlib
from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import on_disk, primary
from anisoscope.engine.intervals import LEVEL, holm_of
from findings.claims import evidence
from findings.claims.claim_entries import CLAIMS, LEARNED, OWN, PROJECT, RECONSTRUCTED, THREE, Claim

REPRODUCED, CONTRADICTED = "reproduced", "contradicted"
NOT_SHOWN = "our reconstruction does not show it"  # contradicted, by a reconstructed formula
EQUIVALENT, INCONCLUSIVE = "equivalent to none", "inconclusive"
VERDICTS = (REPRODUCED, CONTRADICTED, NOT_SHOWN, EQUIVALENT, INCONCLUSIVE)
TOO_WIDE, CONSTANT = "interval too wide", "the seeds have no variance, so no test applies"
STUDENT, NORMAL = "Student", "normal distribution"
SIGN, FISHER = "sign test, range of the seeds", "Fisher's z"
SINGLE = "one model on one sample, no test"
ROUNDING = 1e-9  # an end nearer to a bound than this lies on it
COLUMNS = (
    *("experiment", "claim", "model", "paper", "mark", "role", "statistic", "smallest"),
    *("effect", "low", "high", "n", "test", "p", "p_holm", "p_project", "verdict", "reason"),
)
CONTRAST = "primary contrast"  # its entry in the columns paper and role
PAPERS, OTHERS, UNCOUNTED = "three papers", "other papers", "not counted"  # roles; OWN is one too


def verdicts(
    folders: Iterable[pathlib.Path], duplicates: Iterable[tuple[str, str]] = ()
) -> pd.DataFrame:
    """Judge every claim and primary contrast of these experiments, one row for each.

    Args:
        folders: folders of tables, such as findings/tables/mask_ablations.
        duplicates: (experiment, model) pairs to leave out because another folder contains the same
            runs.

    Returns:
        A DataFrame with the columns COLUMNS.

    Raises:
        ValueError: a folder contains no table with evidence on any claim, or two folders have one name.
    """
    paths, duplicates = [*folders], {*map(tuple, duplicates)}
    names = [path.resolve().name for path in paths]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
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


def judge_interval(low: float, high: float, claim: Claim) -> str:
    """Judge an interval by the smallest effect of interest; an end on the bound decides nothing."""
    within, beyond = claim.smallest - ROUNDING, claim.smallest + ROUNDING
    opposite = NOT_SHOWN if claim.mark == RECONSTRUCTED else CONTRADICTED
    if high < within and (claim.directed or -within < low):
        return REPRODUCED if claim.absence else EQUIVALENT
    if low > beyond:
        return opposite if claim.absence else REPRODUCED
    return opposite if high < -beyond else INCONCLUSIVE


def judge_claims(rows: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """Return effect, interval, p and verdict of each claim and model, and of its parts."""
    tests, keys = [], ["claim", "model", "part"]
    for (name, model, part), group in rows.groupby(keys, sort=False):
        claim = CLAIMS[name]
        estimate = estimate_effect(group, claim)
        if reason := why_untested(group, claim, estimate):
            estimate["p"] = np.nan
        found = INCONCLUSIVE if reason else judge_interval(estimate["low"], estimate["high"], claim)
        about = {"experiment": experiment, "claim": name, "verdict": found}
        about["model"] = f"{model}, {part}" if part else model
        about["role"] = find_role(claim, part)
        about["reason"] = reason or TOO_WIDE * (found == INCONCLUSIVE)
        tests.append(claim._asdict() | estimate | about)
    frame = pd.DataFrame(tests, columns=list(COLUMNS))
    return frame.drop(columns=["p_holm", "p_project"])


def find_role(claim: Claim, part: str) -> str:
    """Say whether a row is counted, and with which papers; a verdict a model and claim is."""
    if part or claim.reading_of:
        return UNCOUNTED
    return {OWN: OWN}.get(claim.paper, PAPERS if claim.paper in THREE else OTHERS)


def estimate_effect(group: pd.DataFrame, claim: Claim) -> dict[str, float | str]:
    """Return effect, low, high, n, test and p: over seeds, or as the table has them."""
    if group["low"].notna().any():
        effect, low, high, n = group[["value", "low", "high", "n"]].iloc[0]
        ends = {"effect": effect, "low": low, "high": high}
        return ends | {"n": int(n), "test": SINGLE, "p": np.nan}
    values = group["value"][np.isfinite(group["value"])].to_numpy(float)
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
    nearer = smallest if claim.directed else np.copysign(smallest, effect)
    p = 2 * stats.t.sf(abs(effect - nearer) / error, freedom) if error > 0 else np.nan
    ends = scale(np.array([effect, effect - half, effect + half]))
    names, found = ("effect", "low", "high", "n", "test", "p"), (*ends, int(n), test, p)
    return dict(zip(names, found, strict=True))


def why_untested(group: pd.DataFrame, claim: Claim, estimate: dict[str, float | str]) -> str:
    """Return why a claim is not judged; "" if it is."""
    n = estimate["n"]
    if estimate["test"] == SINGLE:
        return "" if np.isfinite(estimate["effect"]) else "no value"
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
        role=CONTRAST,
        mark=PROJECT,
        statistic=[f"change, {primary.WHERE[at]}" for at in contrasts["at"]],
        smallest=contrasts["margin"],
        effect=contrasts["change"],
        n=contrasts["pairs"],
        test=STUDENT,
        reason="among the primary contrasts: " + contrasts["verdict"],
        verdict=[primary.judge_contrast(*row) for row in p.itertuples(index=False)],
    )
    return rows[list(COLUMNS)]


def count(frame: pd.DataFrame) -> pd.DataFrame:
    """Count verdicts: a row for each group, with columns for each verdict and for corrected ones.

    Low bars, single models and what is not counted are groups of their own.
    """
    claims = frame[frame["role"] != CONTRAST]
    low = claims["claim"].map(lambda name: bool(CLAIMS[name].low_bar))
    group = claims["role"].where(claims["role"].isin([OWN, UNCOUNTED]) | ~low, "low bars")
    single = claims["test"].eq(SINGLE) & group.ne(UNCOUNTED)
    group = group.mask(single, group + ", single models")
    counts = pd.crosstab(group, claims["verdict"]).reindex(columns=list(VERDICTS), fill_value=0)
    sure = claims["p_project"] < 1 - LEVEL
    corrected = pd.crosstab(group[sure], claims["verdict"][sure])
    corrected = corrected.reindex(counts.index, fill_value=0)
    corrected = corrected.reindex(columns=list(VERDICTS[:-1]), fill_value=0)
    untested = claims["reason"].ne("") & claims["reason"].ne(TOO_WIDE)
    counts["not tested"] = untested.groupby(group).sum()
    return counts.join(corrected.add_suffix(", corrected"))
