"""What the figures of untrained blocks share: rows of panels, the axis of the bias, intervals, the small print."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.measurement.sources.untrained.theory import keys_of_rows
from anisoscope.plot import rulers, style

NAMES = {"pre": "pre-LN", "post": "post-LN", "raw": "raw rows", "normed": "layer-normed rows"}
RELATIVE = "bias norm / input norm"


def kinds(results: xr.Dataset, *dims: str) -> Iterator[tuple[str, xr.Dataset]]:
    """The tables of every combination of these dimensions' labels, and what to call each."""
    for labels in itertools.product(*(results[dim].values.tolist() for dim in dims)):
        chosen = dict(zip(dims, labels, strict=True))
        yield ",\n".join(NAMES.get(label, label) for label in chosen.values()), results.sel(chosen)


def words(results: xr.Dataset, name: str) -> str:
    attrs = results[name].attrs
    return style.label(attrs["long_name"], attrs["units"], attrs.get("symbol", ""))


def bias_axis(ax: Axes, norms: np.ndarray, label: str = "") -> None:
    """Relative norms of the bias on a log axis that also has room for 0."""
    positive = norms[norms > 0]
    least, most = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    ax.set_xscale("symlog", linthresh=least, linscale=1)
    ax.set_xlim(-0.3 * least, most * 1.6)
    first, last = (round(np.log10(value)) for value in (least, most))
    powers = list(range(first, last + 1, max(1, (last - first + 1) // 3)))
    zero = ["0"] * (0 in norms)
    ax.set_xticks([0.0] * len(zero) + [10.0**power for power in powers], zero + [rulers.power(one) for one in powers])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(label)


def values_of(results: xr.Dataset, name: str, statistic: str) -> np.ndarray:
    return results[name].sel(statistic=statistic).values


def measured(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    """The mean over seeds, with a band for its interval; one seed has none."""
    style.banded(ax, x, *(values_of(results, name, end) for end in ("mean", "low", "high")), **look)


def closed_form(ax: Axes, x: np.ndarray, results: xr.Dataset, name: str, **look: Any) -> None:
    ax.plot(x, values_of(results, name, "predicted"), linewidth=0.9, **look)


def caption(figure: Figure, results: xr.Dataset, shown: str) -> None:
    """What the figure was made from, on it; beside it, by its label, what it shows too."""
    made = f"Bands: {results['cosine_in'].attrs['interval']}; {results.attrs['description']}."
    style.small_print(figure, [made])
    figure.set_label(f"{shown}\n\n{made}")


def choices_of_rows(results: xr.Dataset, mask: str) -> np.ndarray:
    """How many keys those rows see that see several."""
    keys_T = keys_of_rows(mask, json.loads(results.attrs["config"])["context"])
    return keys_T[keys_T > 1]
