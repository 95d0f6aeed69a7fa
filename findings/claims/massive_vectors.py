"""Claims on massive vectors, the height of the bell and its parts, then verdicts and baselines.

    .venv/bin/python -m findings.claims.massive_vectors

It reads heights.csv and shares.csv of findings/tables/massive_vectors (findings/scripts/bell_heights.py and
bell_factors.py make them), and writes verdicts.csv and baselines.csv there.

Written before a value was read: four decoders, three texts (enwik8, the language reference of Python,
the source of its library), windows of 32, 128, 512 and 2,048 tokens (both Qwen2.5: up to 512; some
texts: 128 alone), 1,024 to 2,048 tokens in all. A cell is a layer from block 1 on in which some vector
is massive: longer than ten times the median norm of its cloud. f is the share of massive vectors, r
their root mean square norm over that of the rest.

**Claims on the height**, each a share of cells of a model; a cell counts where the distance is at most
CLOSE. It holds from HOLDS on, holds in part from HALF on, and does not hold below.

- `by_norms`: anisotropy is f r² / (1 + f r²), by the norms of the same cloud. The primary claim.
- `by_distances`: anisotropy lies in [f d² / (1 + f d²), (a + f d²) / (1 + f d²)], d the distance of massive
  vectors from the mean of the rest, in the rest's root mean square distance, a the rest's anisotropy.
- `from_another_text`: anisotropy at any length of the two other texts is that of `by_norms` with r of
  enwik8 at REFERENCE tokens and one massive vector a window, f = 1 / length.
- `distances_from_another_text`: the same with d.
- `constant_norm`: the log2 of r of a layer and text differs by at most CONSTANT over all lengths; cells
  are layers of a text, read at several lengths, that have massive vectors at each of them.

**Claim on what is left**, a verdict for each model and text at REFERENCE tokens, by the rules of
findings/rules.md: `bell_without_massive`: without all massive vectors a bell from block 1 on of BELL is
left. The expectation is that it is not.

**Claims on the parts**, at REFERENCE tokens, means over three texts. The height H(S) is the mean over
inner layers (block 1 to the last but one) of the leading share of the second moment, when the factors S
are taken away: the first token of each window; the top 1, 4 or 16 coordinates of the layer by mean
square; the mean of the vectors that are left; the scale of coordinates, by multiplying them by the gain
of the final norm. Shares are Shapley's of H(none) − H(all), over H(none), so they and what is left add
up to 1. The second moment about 0 is the start, since taking its mean away makes the covariance, whose
leading share is the library's anisotropy. A difference of the ends of the profile is not the measure:
a factor that raises an end would seem to explain a middle.

- `token_leads`: the first token's share with the top coordinate is the largest of four, in SmolLM2 and both
  Qwen2.5. In Gemma it is expected not to be.
- `coordinate_leads_in_gemma`: in Gemma the top coordinate's is.
- `mean_alone_little`: the mean alone, H(none) − H(mean) over H(none), is below SMALL where `token_leads`.
- `gain_little`: the gain's share lies within ± SMALL in every model.
- `all_together`: with 16 coordinates what is left is below LEFT of H(none) in every model.

**Baselines, added after the verdicts were known**, so they are not judged: `constant` is the median anisotropy
of a model's cells, `copy` the anisotropy of the same layer of enwik8 at REFERENCE tokens. `distances` is
`distances_from_another_text`, and the same in the other windows of enwik8.
"""

import pathlib

import numpy as np
import pandas as pd

from anisoscope.results import joined_files
from findings.claims.claim_entries import OWN, Claim
from findings.claims.profiles import bell_ends
from findings.claims.verdicts import judge_interval
from findings.scripts.shared_tables import read_shape

TABLES = pathlib.Path("findings/tables/massive_vectors")
CLOSE, HOLDS, HALF = 0.05, 0.9, 0.5
CONSTANT = 0.2  # log2 units
REFERENCE, FIRST_TEXT = 128, "enwik8"  # tokens of a window
BELL = Claim(OWN, "a bell without massive vectors", 0.05, ("bell_blocks",), directed=True)
SMALL, LEFT = 0.05, 0.2
GEMMA = "Gemma-3-270M"


def height(f: pd.Series, ratio: pd.Series, rest: pd.Series | float = 0.0) -> pd.Series:
    """Return the leading share of a share f of vectors at `ratio` from a rest of leading share `rest`."""
    return (rest + f * ratio**2) / (1 + f * ratio**2)


def outside(value: pd.Series, low: pd.Series, high: pd.Series) -> pd.Series:
    """Return how far a value lies above (or below, negative) the nearer end."""
    return value - value.clip(low, high)


def residuals(heights: pd.DataFrame) -> pd.DataFrame:
    """Add what each claim on the height leaves over to the layers that have massive vectors."""
    cells = heights[(heights.layer > 0) & (heights.massive > 0)].copy()
    measured, f = cells.anisotropy, cells.f
    cells["by_norms"] = measured - height(f, cells.r)
    cells["by_distances"] = outside(measured, height(f, cells.d), height(f, cells.d, cells.rest))
    own = cells[(cells.text == FIRST_TEXT) & (cells.length == REFERENCE)]
    other = cells[["model", "layer"]].merge(
        own[["model", "layer", "r", "d", "rest", "anisotropy"]], "left", ["model", "layer"]
    )
    other.index, first = cells.index, 1 / cells.length
    elsewhere = (cells.text != FIRST_TEXT) & other.r.notna()
    cells["from_another_text"] = (measured - height(first, other.r)).where(elsewhere)
    ends = height(first, other.d), height(first, other.d, other.rest)
    cells["distances"] = outside(measured, *ends).where(other.r.notna())
    cells["distances_from_another_text"] = cells.distances.where(elsewhere)
    cells["middle"] = (measured - sum(ends) / 2).where(other.r.notna())
    cells["copy"] = measured - other.anisotropy
    cells["constant"] = measured - cells.groupby("model").anisotropy.transform("median")
    return cells


def constancy(heights: pd.DataFrame) -> pd.DataFrame:
    """Return the range of log2 r over lengths, of layers with massive vectors at each of them."""
    lengths = heights.groupby(["model", "text"]).length.nunique()
    cells = heights[(heights.layer > 0) & (heights.massive > 0)]
    groups = cells.assign(log=np.log2(cells.r)).groupby(["model", "text", "layer"]).log
    found = groups.agg(["count", np.ptp]).reset_index()
    read = lengths.loc[found.set_index(["model", "text"]).index].to_numpy()
    every = (found["count"] == read) & (read > 1)
    return found[every].rename(columns={"ptp": "range"})


def judge_share(share: float) -> str:
    """Say what a share of cells says of a claim."""
    return "holds" if share >= HOLDS else "holds in part" if share >= HALF else "does not hold"


def judge_heights(heights: pd.DataFrame) -> pd.DataFrame:
    """Judge the claims on the height, a row for each claim and model."""
    cells, rows = residuals(heights), []
    for name in ("by_norms", "by_distances", "from_another_text", "distances_from_another_text"):
        for model, own in cells.dropna(subset=name).groupby("model", sort=False):
            rows.append(describe(name, model, own[name].abs(), CLOSE))
    for model, own in constancy(heights).groupby("model", sort=False):
        rows.append(describe("constant_norm", model, own["range"], CONSTANT))
    return pd.DataFrame(rows)


def describe(claim: str, model: str, distance: pd.Series, bound: float) -> dict[str, object]:
    share = (distance <= bound).mean()
    numbers = {"effect": share, "cells": len(distance), "median": distance.median()}
    verdict = judge_share(share)
    return {"claim": claim, "model": model} | numbers | {"most": distance.max(), "verdict": verdict}


def compare_baselines(heights: pd.DataFrame) -> pd.DataFrame:
    """Return how near baselines come, a row for each set of cells, model and prediction."""
    cells = residuals(heights)
    first, rows = cells.text == FIRST_TEXT, []
    sets = {
        "all": (cells, ["constant"]),
        "other texts": (cells[~first], ["distances", "middle", "copy"]),
        "other windows": (
            cells[first & (cells.length != REFERENCE)],
            ["distances", "middle", "copy"],
        ),
    }
    for name, (chosen, predictions) in sets.items():
        for prediction in predictions:
            for model, own in chosen.dropna(subset=prediction).groupby("model", sort=False):
                row = describe(prediction, model, own[prediction].abs(), CLOSE)
                rows.append({"set": name, "prediction": row.pop("claim")} | row)
    return pd.DataFrame(rows).drop(columns="verdict")


def judge_bells(heights: pd.DataFrame, positions: str = "rest") -> pd.DataFrame:
    """Judge what is left of each model's bell in each text, by default without massive vectors.

    `positions` is a column of the heights: `rest`, `without_first`, or `anisotropy` for all vectors.
    """
    name = {"rest": "without_massive", "anisotropy": "all"}.get(positions, positions)
    rows = []
    for (model, text), own in heights[heights.length == REFERENCE].groupby(
        ["model", "text"], sort=False
    ):
        own = own.sort_values("layer")
        low, high = bell_ends(*(own[positions + x].to_numpy()[1:] for x in ("_low", "_high")))
        effect = read_shape("bell_blocks", own[positions].to_numpy())
        row = {"claim": f"bell_{name}", "model": model, "text": text, "effect": effect}
        rows.append(row | {"low": low, "high": high, "verdict": judge_interval(low, high, BELL)})
    return pd.DataFrame(rows)


def judge_parts(shares: pd.DataFrame) -> pd.DataFrame:
    """Judge the claims on the parts, from means over texts of the shares over inner layers."""
    inner = shares[(shares.layer == "inner") & (shares.start == "about 0")]
    means = inner.groupby(["model", "coordinates", "factor"])[["share", "alone"]].mean()
    rows = []
    for model in inner.model.unique():
        own, gemma = means.loc[model], model == GEMMA
        top = own.loc[1]
        leader = top.share.drop("left").idxmax()
        name = "coordinate_leads_in_gemma" if gemma else "token_leads"
        leads = leader == ("coordinates" if gemma else "first")
        tests = {name: (top.share.drop("left").max(), leads)}
        if not gemma:
            tests["mean_alone_little"] = top.alone["mean"], top.alone["mean"] < SMALL
        tests["gain_little"] = top.share["gain"], abs(top.share["gain"]) <= SMALL
        left = own.loc[16].share["left"]
        tests["all_together"] = left, left < LEFT
        for claim, (effect, holds) in tests.items():
            verdict = "holds" if holds else "does not hold"
            rows.append({"claim": claim, "model": model, "effect": effect, "verdict": verdict})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    heights_of = pd.read_csv(TABLES / "heights.csv")
    shares_of = pd.read_csv(TABLES / "shares.csv", dtype={"layer": str})
    judged = judge_heights(heights_of), judge_bells(heights_of), judge_parts(shares_of)
    table = pd.concat(judged, ignore_index=True)
    joined_files.write_csv(table, TABLES / "verdicts.csv")
    baselines = compare_baselines(heights_of)
    joined_files.write_csv(baselines, TABLES / "baselines.csv")
    for frame in (table, baselines):
        print(frame.round(3).to_string(index=False))
