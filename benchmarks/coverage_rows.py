"""What `benchmarks.coverage` tells: a row of each metric on each cloud, and two tables of them."""

import dataclasses

import numpy as np

from anisoscope.measurement.intervals import Summary

LOW, HIGH = 0.92, 0.98  # what a nominal 95 % may measure


@dataclasses.dataclass(frozen=True)
class Row:
    metric: str
    cloud: str
    points: int
    truth: float  # NaN where unknown
    mean: float  # over draws: the expectation
    of_truth: float  # share of the draws whose interval holds it
    of_expectation: float
    half_width: float  # mean over draws
    found: float = 1.0  # share of the draws that have a value

    @property
    def bias(self) -> float:
        """Relative to the truth; NaN where that is unknown or zero but for rounding."""
        return self.mean / self.truth - 1 if abs(self.truth) > 1e-6 else np.nan

    @property
    def verdict(self) -> str:
        if np.isnan(self.of_expectation):
            return "no value"
        words = "too narrow" if self.of_expectation < LOW else "too wide" if self.of_expectation > HIGH else ""
        return words if self.found == 1 else f"{words} ({self.found:.0%} of the draws have one)".strip()


def row_of(metric: str, cloud: str, truth: float, summary: Summary, points: int) -> Row:
    found_N = ~np.isnan(summary.mean)
    mean_N, low_N, high_N = (value_N[found_N] for value_N in (summary.mean, summary.low, summary.high))
    if not found_N.any():
        return Row(metric, cloud, points, truth, *[np.nan] * 4, 0.0)
    expectation = float(mean_N.mean())

    def share(value: float) -> float:
        if np.isnan(value) or np.isnan(low_N).any():
            return np.nan
        return float(((low_N <= value) & (value <= high_N)).mean())

    half_width = float((high_N - low_N).mean() / 2)
    return Row(metric, cloud, points, truth, expectation, share(truth), share(expectation), half_width, found_N.mean())


def table(rows: list[Row]) -> str:
    lines = [
        "| metric | cloud | points | truth | mean estimate | bias | covers the truth | expectation | half-width | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        values = [f"{row.truth:.4g}", f"{row.mean:.4g}", f"{row.bias:+.1%}", f"{row.of_truth:.0%}"]
        values += [f"{row.of_expectation:.1%}", f"{row.half_width:.2g}", row.verdict]
        shown = ["" if value.strip("+%") == "nan" else value for value in values]
        lines.append("| " + " | ".join([row.metric, row.cloud, str(row.points), *shown]) + " |")
    return "\n".join(lines)


def overview(rows: list[Row]) -> str:
    """Of each metric: the coverages of its expectation over the clouds, and its bias where the truth is known."""
    lines = ["| metric | covers its expectation | on clouds within 92-98 % | bias |", "|---|---|---|---|"]
    for metric in dict.fromkeys(row.metric for row in rows):
        mine = [row for row in rows if row.metric == metric]
        covers = [row.of_expectation for row in mine if not np.isnan(row.of_expectation)]
        bias = [row.bias for row in mine if not np.isnan(row.bias)]
        spans = [f"{min(values):.1%} to {max(values):.1%}" if values else "" for values in (covers, bias)]
        within = sum(LOW <= value <= HIGH for value in covers)
        lines.append(f"| {metric} | {spans[0]} | {within} of {len(covers)} | {spans[1]} |")
    return "\n".join(lines)
