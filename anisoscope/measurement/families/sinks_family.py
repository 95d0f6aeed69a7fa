"""Family sinks: the share of heads with an attention sink as a function of the threshold."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families import attention_family
from anisoscope.measurement.families.attention_family import SINK, Heads
from anisoscope.measurement.quantity import HERE, SHARE, Family, Quantity, Values, jackknifed

THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def _rate(weight: str, long_name: str, source: str) -> Quantity:
    return jackknifed(
        dims=("block", "threshold"),
        long_name=long_name,
        formula=f"share of the heads of a block whose {weight} exceeds `threshold`",
        source=source,
        range=SHARE,
    )


WEIGHTS = {"sink_rate": "attention_first_token", "sink_rate_anywhere": "attention_most_attended"}
QUANTITIES = {
    "sink_rate": _rate(
        WEIGHTS["sink_rate"],
        "share of heads with a sink on the first token",
        f"{SINK}; at one threshold there",
    ),
    "sink_rate_anywhere": _rate(
        WEIGHTS["sink_rate_anywhere"], "share of heads with a sink on any position", HERE
    ),
}


def compute(heads: Heads, folds: int, over: Callable[[Callable, Any], Any] = jax.lax.map) -> Values:
    """Measure blocks, (block, threshold, R); NaN where a head's weight is NaN."""
    values = attention_family.compute(heads, folds, over)

    def rate(weight_NHR: Array) -> Array:
        known_N1R = jnp.isfinite(weight_NHR).all(axis=1)[:, None]
        above = weight_NHR[:, :, None] > jnp.array(THRESHOLDS)[None, None, :, None]
        return jnp.where(known_N1R, above.mean(axis=1), jnp.nan)

    return {name: rate(values[weight]) for name, weight in WEIGHTS.items()}


FAMILY = Family(
    input_kind="heads",
    compute=compute,
    quantities=QUANTITIES,
    coordinates={"threshold": THRESHOLDS},
)
