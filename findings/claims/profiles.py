"""Evidence of single models on one sample: pretrained models, and a profile that a paper shows.

Layers of one sample depend on each other, so the interval of a number over depth is the range of
that number while every layer lies anywhere in its own interval: the ends are reached where layers
are at the unfavorable ends of theirs. It need not be symmetric, and stays inside of the number's
range. It speaks of one model and one text; no p says more.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar

from findings.claims.claim_entries import CLAIMS
from findings.scripts.shared_tables import MODELS, read_shape

PART = "without the first token"
SIDES = {"all": "", "without_first_token": PART}
WINDOWS = 32  # of a text model: 2 batches of 8 folds of 2 windows (2,048 points, 256 tokens)
FEWER = {"Qwen2.5-Coder-1.5B-Instruct": 16, "Whisper-base": 8}  # one batch; chunks of sound
PROFILES = ("decoder_bell", "decoder_bell_with_embedding", "flat_encoder")
VERTICES = 16  # layers, above which not every corner of a box is tried


def bell_ends(low_L: np.ndarray, high_L: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest bell of layers that lie between these ends.

    A bell is the largest inner layer minus the larger of the first and the last.
    """
    return (
        low_L[1:-1].max() - high_L[[0, -1]].max(),
        high_L[1:-1].max() - low_L[[0, -1]].max(),
    )


def deviation_ends(low_L: np.ndarray, high_L: np.ndarray) -> tuple[float, float]:
    """Return the least and the largest standard deviation of layers that lie between these ends.

    The least has every layer as near to a common value as its interval allows. The largest is at a
    corner of the box, since the deviation is convex.
    """
    if len(low_L) > VERTICES:
        raise ValueError(f"{len(low_L)} layers; at most {VERTICES} are supported")

    def scatter(center: float) -> float:
        return np.square(np.clip(center, low_L, high_L) - center).mean()

    bounds = (low_L.min(), high_L.max())
    least = minimize_scalar(scatter, bounds=bounds, method="bounded", options={"xatol": 1e-10})
    corners = itertools.product(*zip(low_L, high_L, strict=True))
    return float(np.sqrt(least.fun)), max(np.std(corner) for corner in corners)


def read_profiles() -> Iterator[dict[str, Any]]:
    """Yield the bells of decoders and the flatness of encoders, of real_models/layers.csv."""
    published = pd.read_csv(MODELS / "published.csv")
    frame = pd.concat([pd.read_csv(MODELS / "layers.csv"), published])
    counts = dict.fromkeys(published["model"], 1) | FEWER
    frame = frame.assign(n=frame["model"].map(counts).fillna(WINDOWS).astype(int))
    frame = frame[frame["positions"].isin(SIDES)]
    for (model, kind, side), own in frame.groupby(["model", "kind", "positions"], sort=False):
        own = own.set_index("layer").reindex(range(own["layer"].max() + 1))
        for claim in PROFILES:
            layers = own.loc[int(claim != "decoder_bell_with_embedding") :]
            if kind not in CLAIMS[claim].models or not np.isfinite(layers["mean"]).all():
                continue
            (column,) = CLAIMS[claim].columns
            value = read_shape(column, own["mean"].to_numpy())
            ends = deviation_ends if claim == "flat_encoder" else bell_ends
            low, high = ends(layers["low"].to_numpy(), layers["high"].to_numpy())
            unit, n = "profile", int(layers["n"].iloc[-1])
            yield describe(claim, model, side, value, low, high) | {"unit": unit, "n": n}


def read_neighborhoods() -> Iterator[dict[str, Any]]:
    """Yield what neighborhoods of pretrained models say, of real_models/local.csv."""
    table = pd.read_csv(MODELS / "local.csv")
    for (model, side), own in table.groupby(["model", "positions"], sort=False):
        value, low, high = own.set_index("quantity")[["mean", "low", "high"]].to_numpy().T
        whole, part, excess = (
            list(own["quantity"]).index(name)
            for name in ("anisotropy", "local_anisotropy", "local_anisotropy_excess")
        )
        found = {
            "neighborhoods_more_isotropic": (
                value[whole] - value[part],
                low[whole] - high[part],
                high[whole] - low[part],
            ),
            "neighborhoods_beyond_gaussian": (-value[excess], -high[excess], -low[excess]),
        }
        for claim, numbers in found.items():
            yield describe(claim, model, side, *numbers) | {"unit": "over blocks", "n": WINDOWS}


def describe(
    claim: str, model: str, side: str, value: float, low: float, high: float
) -> dict[str, Any]:
    """Return a row of evidence; without the first token it is a part."""
    about = {"claim": claim, "model": model, "part": SIDES[side], "outside": "", "gain": np.inf}
    return about | {"value": value, "low": low, "high": high}


def read_models() -> pd.DataFrame:
    """Return the evidence of all single models."""
    return pd.DataFrame([*read_profiles(), *read_neighborhoods()])
