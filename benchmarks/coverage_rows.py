"""Format the results of `benchmarks.coverage`: a row for each metric on each cloud, two tables."""

import dataclasses

import numpy as np
import pandas as pd

from anisoscope.measurement.intervals import Estimate

LOW, HIGH = 0.92, 0.98  # what a nominal 95 % may measure


@dataclasses.dataclass(frozen=True)
class Row:
    metric: str
    cloud: str
    points: int
    truth: float  # NaN where unknown
    mean: float  # over draws: the expectation
    truth_share: float  # share of the draws whose interval holds it
    expectation_share: float
    half_width: float  # mean over draws
    found: float = 1.0  # share of the draws that have a value

    @property
    def bias(self) -> float:
        """Compute the bias relative to the truth; NaN if that is unknown or zero up to rounding."""
        return self.mean / self.truth - 1 if abs(self.truth) > 1e-6 else np.nan

    @property
    def verdict(self) -> str:
        if np.isnan(self.expectation_share):
            return "no value"
        words = (
            "too narrow"
            if self.expectation_share < LOW
            else "too wide"
            if self.expectation_share > HIGH
            else ""
        )
        return (
            words
            if self.found == 1
            else f"{words} ({self.found:.0%} of the draws have one)".strip()
        )


def row_of(metric: str, cloud: str, truth: float, summary: Estimate, points: int) -> Row:
    found_N = ~np.isnan(summary.mean)
    mean_N, low_N, high_N = (
        value_N[found_N] for value_N in (summary.mean, summary.low, summary.high)
    )
    if not found_N.any():
        return Row(metric, cloud, points, truth, *[np.nan] * 4, 0.0)
    expectation = float(mean_N.mean())

    def share(value: float) -> float:
        if np.isnan(value) or np.isnan(low_N).any():
            return np.nan
        return float(((low_N <= value) & (value <= high_N)).mean())

    half_width = float((high_N - low_N).mean() / 2)
    return Row(
        metric,
        cloud,
        points,
        truth,
        expectation,
        share(truth),
        share(expectation),
        half_width,
        found_N.mean(),
    )


def table(rows: list[Row]) -> str:
    """Return a row for each metric, cloud and number of points; what is unknown is left empty."""
    each = [dataclasses.asdict(row) | {"bias": row.bias, "verdict": row.verdict} for row in rows]
    return pd.DataFrame(each).to_string(index=False, na_rep="", float_format="%.4g")


def overview(rows: list[Row]) -> str:
    """Return the range of each metric's coverage of its expectation over clouds, and its biases."""
    each = pd.DataFrame([dataclasses.asdict(row) | {"bias": row.bias} for row in rows])
    columns = each.groupby("metric", sort=False)[["expectation_share", "bias"]]
    return columns.agg(["min", "max"]).to_string(na_rep="", float_format="%.3g")
