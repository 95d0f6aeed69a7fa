"""The verdict on a GRIDE curve over scales: which scales agree, what dimension they give, and how sure that is.

Letters: G probe batches, S sets of positions.
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from anisoscope.measurement.families.entries import coordinates
from anisoscope.measurement.intervals import LEVEL, Summary, redrawn
from anisoscope.metrics import scale

NAME = "plateau"  # among the quantities of the panel
DRAWS = 1000
_plateaus = jax.jit(jax.vmap(scale.plateau))


def verdict(gride: xr.DataArray) -> tuple[xr.DataArray, tuple[xr.DataArray, xr.DataArray]]:
    """Which scales of each layer make up the plateau of the mean curve over batches; their least and greatest rank."""
    mean = gride.isel(sections=0).mean("batch", skipna=False).transpose("positions", "layer", "neighbours")
    inside = mean.copy(data=_inside(mean.values))
    ranks = xr.where(inside, xr.DataArray(list(coordinates()["neighbours"]), dims="neighbours"), np.nan)
    return inside, (ranks.min("neighbours"), ranks.max("neighbours"))


def with_verdict(raw: xr.Dataset, inside: xr.DataArray) -> xr.Dataset:
    """Adds the geometric mean of every GRIDE curve over the scales `inside`; NaN where one of them has no value.

    Every replicate, every cloud and the untrained network are read on the same scales, or their excess would compare
    different ones.
    """
    gride = raw["gride"]
    logs = xr.where(inside, np.log(gride), 0.0).sum("neighbours", skipna=False)
    over = np.exp(logs / inside.sum("neighbours")).where(inside.any("neighbours"))
    return raw.assign({NAME: over.assign_attrs(gride.attrs)})


def with_choice(summary: Summary, gride_GRSLK: np.ndarray, null_GRSLK: np.ndarray | None = None) -> Summary:
    """The moments of what `read` adds, or of its excess, with `interval`, which is made to hold the mean."""
    low, high = interval(gride_GRSLK, null_GRSLK)
    return summary._replace(low=np.minimum(low, summary.mean), high=np.maximum(high, summary.mean))


@np.errstate(invalid="ignore")  # an infinite dimension has no interval
def interval(gride_GRSLK: np.ndarray, null_GRSLK: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of the plateau, or of its excess over a null model on the same scales; arrays (positions, layer).

    G batches, R replicates, S position sets, L layers, K scales. The scales are chosen by the data, and where a curve
    falls slowly chosen anew by other data: of 8 Gaussian dimensions an interval that holds them fixed covers 51 %
    (benchmarks/coverage.py). So the whole mean curve is redrawn, each draw has its own verdict, and the quantiles of
    these are the interval; draws without a plateau are left out. NaN where the mean curve has no plateau, and where a
    scale on it has no replicates.
    """
    curve_DSLK = redrawn(gride_GRSLK, "sections", DRAWS)
    observed_SLK = np.asarray(gride_GRSLK, np.float64)[:, 0].mean(axis=0)
    inside_SLK, inside_DSLK = _inside(observed_SLK), _inside(curve_DSLK)
    value_DSL = _over(curve_DSLK, inside_DSLK)
    unknown_SL = ~inside_SLK.any(axis=2) | (inside_SLK & np.isnan(curve_DSLK).any(axis=0)).any(axis=2)
    if null_GRSLK is not None:
        value_DSL = value_DSL - _over(redrawn(null_GRSLK, "sections", DRAWS), inside_DSLK)
    unknown_SL |= np.isnan(value_DSL).all(axis=0)
    low, high = np.nanquantile(np.where(unknown_SL, 0.0, value_DSL), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return np.where(unknown_SL, np.nan, low), np.where(unknown_SL, np.nan, high)


def _inside(curve: np.ndarray) -> np.ndarray:
    """Which scales, the last axis, are on the plateau of each curve."""
    plateaus = _plateaus(jnp.asarray(curve, jnp.float32).reshape(-1, curve.shape[-1]))
    first, last = (np.asarray(end).reshape(curve.shape[:-1])[..., None] for end in (plateaus.first, plateaus.last))
    index_K = np.arange(curve.shape[-1])
    return (index_K >= first) & (index_K <= last)


@np.errstate(invalid="ignore", divide="ignore")  # a draw can be negative; without a plateau there is no mean
def _over(curve_DSLK: np.ndarray, inside_DSLK: np.ndarray) -> np.ndarray:
    """Geometric mean over the scales inside."""
    return np.exp(np.where(inside_DSLK, np.log(curve_DSLK), 0.0).sum(axis=-1) / inside_DSLK.sum(axis=-1))
