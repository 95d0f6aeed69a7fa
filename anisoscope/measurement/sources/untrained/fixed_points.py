"""Where the norm after untrained blocks is the norm before them, as the common bias grows."""

import numpy as np
import xarray as xr


def fixed_points(whole: xr.Dataset) -> xr.Dataset:
    """Where norm_out crosses norm_in for the first time, per seed: linear in log N between the norms around it.

    Both are compared as logarithms, which are straight lines in log N for a large bias.
    """
    biased = whole.isel(relative_norm=whole.relative_norm.values > 0)
    order = ("relative_norm", *(dim for dim in biased.norm_out.dims if dim != "relative_norm"))
    log_in, log_out, log_bias = (
        np.log(value.broadcast_like(biased.norm_out).transpose(*order).values.astype(np.float64))
        for value in (biased.norm_in, biased.norm_out, biased.bias_norm)
    )
    excess = log_out - log_in
    sign = np.where(np.abs(excess) > 1e-5, np.sign(excess), 0)  # what is equal but for rounding does not cross
    later = sign.copy()  # where they are equal, which is larger when they next differ
    for place in range(len(sign) - 2, -1, -1):
        later[place] = np.where(sign[place] == 0, later[place + 1], sign[place])
    crosses = sign[:-1] * later[1:] < 0
    first = crosses.argmax(0)[None] if len(crosses) else np.zeros((1, *excess.shape[1:]), int)

    def at_crossing(value: np.ndarray) -> np.ndarray:
        if not len(crosses):
            return np.full(excess.shape[1:], np.nan)
        (before,), (after,) = (np.take_along_axis(value, first + step, 0) for step in (0, 1))
        (left,), (right,) = (np.take_along_axis(excess, first + step, 0) for step in (0, 1))
        met = crosses.any(0)
        share = np.where(met, left, 0) / np.where(met, left - right, 1)
        return np.where(met, np.exp(before + (after - before) * share), np.nan)

    return xr.Dataset(
        {"fixed_point": (order[1:], at_crossing(log_in)), "fixed_point_bias": (order[1:], at_crossing(log_bias))}
    )
