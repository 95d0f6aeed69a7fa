"""The phases of training in texts of skewed and of flattened frequencies: claims, then verdicts.

    .venv/bin/python -m findings.claims.phases RUNS

It reads RUNS/<text>_<seed> (experiments/symbol_frequencies.py) as far as they are measured, and
writes curves.csv, layers.csv, phases.csv and contrasts.csv of findings/tables/symbol_frequencies.

**Claims**, after Li et al. (arXiv 2509.23024, second-hand; that each half is needed is this
project's reading), written before a run was read. Where symbols are skewed and more than the width
(many_natural), the effective rank (a) collapses, (b) grows and (c) is compressed again, each by
more than SMALLEST; each more than (skew) in the same text with flattened frequencies, and than
(width) in a text with fewer symbols than the width. The primary quantity is RankMe of the centered
cloud, the mean over blocks, all positions. α-ReQ, anisotropy, TwoNN and its null are described.

**Rules.** Contrasts are between runs of a seed. Intervals are Student's, 95 %, over three seeds;
verdicts are those of `findings/rules.md`. p tests that the effect is ± SMALLEST, with Holm's
correction over the nine claims. All runs are cut at the last step that every one of them has. A
run of fewer than LENGTH steps says nothing of a compression, and its growth is so far. A phase is
selected over steps, so noise makes it larger, in all texts alike.
"""

import pathlib
import sys

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.shapes import over_depth, read_curve
from anisoscope.engine.intervals import LEVEL, holm_of
from anisoscope.results import joined_files
from findings.claims.claim_entries import OWN, SECOND_HAND, Claim
from findings.claims.verdicts import INCONCLUSIVE, judge_interval

TABLES = pathlib.Path("findings/tables/symbol_frequencies")
TEXTS = ("many_natural", "many_flattened", "few_natural", "few_flattened")
PRIMARY = "rankme_centered"
QUANTITIES = (PRIMARY, "effective_rank", "alpha_req", "anisotropy", "twonn", "twonn_excess")
SMALLEST = 0.2  # log2 units: the bound of phases of the dimension
SEEDS, LENGTH = 3, 3000
EARLY = 256  # a collapse is over by then: the warm-up has 150 steps
CONTRASTS = {  # {name: (text, text that is subtracted)}
    "exists": ("many_natural", None),
    "skew": ("many_natural", "many_flattened"),
    "width": ("many_natural", "few_natural"),
}


def collapse(steps_S: np.ndarray, values_S: np.ndarray) -> float:
    """Return log2(first / smallest until EARLY)."""
    return float(np.log2(values_S[0] / values_S[steps_S <= EARLY].min()))


def growth(steps_S: np.ndarray, values_S: np.ndarray) -> float:
    """Return log2(largest after the smallest until EARLY / that smallest)."""
    least = values_S[steps_S <= EARLY].argmin()
    return float(np.log2(values_S[least:].max() / values_S[least]))


def compression(steps_S: np.ndarray, values_S: np.ndarray) -> float:
    """Return log2(largest after the smallest until EARLY / last); NaN before LENGTH."""
    if steps_S[-1] < LENGTH:
        return np.nan
    least = values_S[steps_S <= EARLY].argmin()
    return float(np.log2(values_S[least:].max() / values_S[-1]))


PHASES = {"collapse": collapse, "growth": growth, "compression": compression}


def read_phases(table: xr.Dataset, last: int) -> dict[str, float]:
    """Read the phases of the primary quantity of a run, up to a step."""
    curve = read_curve(table.sel(step=slice(None, last)), PRIMARY)
    values_S = over_depth(curve)[:, 0]  # all positions
    return {name: read(curve.steps_S, values_S) for name, read in PHASES.items()}


def judge_phases(phases: pd.DataFrame) -> pd.DataFrame:
    """Judge the nine claims from a table of text, seed and phases."""
    values = phases.set_index(["text", "seed"])
    rows = []
    for phase in PHASES:
        for name, (text, other) in CONTRASTS.items():
            effects = values.loc[text, phase] if text in values.index else pd.Series(dtype=float)
            if other:
                known = other in values.index
                effects = effects - values.loc[other, phase] if known else effects * np.nan
            effects = effects.dropna()
            n, effect = len(effects), effects.mean()
            error = stats.sem(effects) if n > 1 else np.nan
            half = error * stats.t.ppf(0.5 + LEVEL / 2, n - 1) if n > 1 else np.nan
            beyond = abs(effect - np.copysign(SMALLEST, effect))
            p = 2 * stats.t.sf(beyond / error, n - 1) if error > 0 else np.nan
            claim = Claim(OWN, f"{phase} {name}", SMALLEST, (phase,), mark=SECOND_HAND)
            verdict = judge_interval(effect - half, effect + half, claim)
            enough = n >= SEEDS
            rows.append(
                {"phase": phase, "claim": name, "effect": effect, "low": effect - half}
                | {"high": effect + half, "n": n, "p": p if enough else np.nan}
                | {"verdict": verdict if enough else f"{INCONCLUSIVE}: {n} of {SEEDS} seeds"}
            )
    frame = pd.DataFrame(rows)
    return frame.assign(p_holm=holm_of(frame["p"].to_numpy(float), len(frame)))


def read_runs(root: pathlib.Path) -> dict[tuple[str, int], xr.Dataset]:
    paths = {(text, seed): root / f"{text}_{seed}" for text in TEXTS for seed in range(SEEDS)}
    return {
        run: joined_files.read_table(path / "results.nc")
        for run, path in paths.items()
        if (path / "results.nc").exists()
    }


def curves(tables: dict[tuple[str, int], xr.Dataset]) -> pd.DataFrame:
    """Return the means over blocks of every quantity at every step of every run."""
    parts = []
    for (text, seed), table in tables.items():
        read = {name: read_curve(table, name) for name in QUANTITIES}
        columns = {name: over_depth(curve)[:, 0] for name, curve in read.items()}
        columns |= {"step": read[PRIMARY].steps_S, "text": text, "seed": seed}
        columns["gain"] = table["validation_gain_over_unigram"].sortby("step").values
        parts.append(pd.DataFrame(columns))
    order = ["text", "seed", "step", "gain", *QUANTITIES]
    return pd.concat(parts, ignore_index=True)[order]


def layers(tables: dict[tuple[str, int], xr.Dataset]) -> pd.DataFrame:
    """Return every quantity of every layer, without the null model, at every step of every run."""
    names, parts = [name for name in QUANTITIES if not name.endswith("_excess")], []
    for (text, seed), table in tables.items():
        means = table[names].sel(statistic="mean", positions="all", drop=True)
        frame = means.reset_coords(drop=True).to_dataframe().reset_index()
        parts.append(frame.assign(text=text, seed=seed))
    return pd.concat(parts, ignore_index=True)[["text", "seed", "step", "layer", *names]]


def main(root: str) -> None:
    tables = read_runs(pathlib.Path(root))
    last = min(int(table.step.max()) for table in tables.values())
    read = [
        {"text": text, "seed": seed, "last_step": last} | read_phases(table, last)
        for (text, seed), table in tables.items()
    ]
    phases = pd.DataFrame(read)
    judged = judge_phases(phases)
    frames = {"curves": curves(tables), "layers": layers(tables)}
    for name, frame in (frames | {"phases": phases, "contrasts": judged}).items():
        joined_files.write_csv(frame, TABLES / f"{name}.csv")
    print(phases.round(3).to_string(), judged.round(3).to_string(), sep="\n\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
