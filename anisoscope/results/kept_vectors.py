"""Queries and keys of a head over training, on the first two axes of a common SVD.

Godey et al. 2024 show in this way that both drift in a common direction. We could not read what
their SVD is taken over and whether it is centered; everything here is a reconstruction.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.measurement.families.attention_family import CHOICE, VECTORS, select_points

SOURCE = "reconstruction after Godey et al. 2024, Anisotropy Is Inherent to Self-Attention in Transformers"
FORMULA = (
    "coordinates on the first two axes of the SVD of all queries and keys of the head, not centered"
)


class CommonAxes(NamedTuple):
    projection: np.ndarray  # (step, kind, vector, 2); NaN where a vector is not finite
    share: np.ndarray  # (2,): of the sum of squares of all finite vectors, largest first
    kept: np.ndarray  # (step,): of the sum of squares of that step, on both axes together


def label_vectors(
    vectors: dict[str, np.ndarray], picks_P: np.ndarray, context: int, head: int
) -> dict[str, xr.DataArray]:
    """Make the variables of a checkpoint's table that hold vectors, with window and position."""
    places = np.asarray(select_points(picks_P))
    coords = {
        "window": ("vector", places // context, {"long_name": "window of the first batch"}),
        "position_in_window": ("vector", places % context, {"long_name": "position in its window"}),
    }
    about = {"units": "activation", "head": head, "chosen": CHOICE}
    return {
        name: xr.DataArray(
            values,
            dims=("block", "vector", "component"),
            coords={"block": np.arange(1, len(values) + 1), **coords},
            attrs={"long_name": f"{VECTORS[name]} vectors", **about},
        )
        for name, values in vectors.items()
        if name in VECTORS
    }


def common_axes(vectors: np.ndarray) -> CommonAxes:
    """Decompose X = U S V^T, finite vectors as rows, and project on the first two columns of V.

    The shape is (step, kind, vector, K), queries first. The data are not centered, so that a drift
    from the origin is visible and coordinates are scalar products with the axes. Vectors count by
    their squared norm, so that late checkpoints, with longer vectors, weigh most. The sign of an
    axis makes the mean coordinate of all finite queries >= 0, a rule that rotations of the head
    space do not change. With K = 1 the second coordinate is 0. Shares are NaN if no vector is
    finite or all are 0.
    """
    rows = vectors.reshape(-1, vectors.shape[-1]).astype(np.float64)
    finite = np.isfinite(rows).all(axis=1)
    _, singular, right = np.linalg.svd(rows[finite], full_matrices=False)
    axes, share = np.zeros((2, rows.shape[1])), np.zeros(2)
    axes[: len(right)], share[: len(right)] = right[:2], np.square(singular[:2])
    flat = np.full((len(rows), 2), np.nan)
    flat[finite] = rows[finite] @ axes.T
    projection = flat.reshape(*vectors.shape[:-1], 2)
    projection = projection * np.where(np.nansum(projection[:, 0], axis=(0, 1)) < 0, -1.0, 1.0)
    squares = (
        np.where(finite, np.square(rows).sum(axis=1), 0.0).reshape(len(vectors), -1).sum(axis=1)
    )
    total = np.square(singular).sum()
    return CommonAxes(
        projection,
        share / total if total else np.full(2, np.nan),
        np.nansum(np.square(projection), axis=(1, 2, 3)) / np.where(squares > 0, squares, np.nan),
    )


def over_training(tables: dict[int, xr.Dataset]) -> xr.Dataset:
    """Project the vectors of all tables on their common axes, with the share that the axes keep."""
    vectors = np.stack([[table[name].values for name in VECTORS] for table in tables.values()])
    like = next(iter(tables.values()))[next(iter(VECTORS))]
    by_block = [common_axes(vectors[:, :, block]) for block in range(like.sizes["block"])]
    share = "share of the sum of squares of"
    variables = {
        "projection_share": (
            ("block", "axis"),
            np.stack([found.share for found in by_block]),
            {"long_name": f"{share} all steps on the axis", "units": "1"},
        ),
        "projection_kept": (
            ("step", "block"),
            np.stack([found.kept for found in by_block], axis=1),
            {"long_name": f"{share} the step on both axes", "units": "1"},
        ),
    }
    for index, kind in enumerate(VECTORS.values()):
        projection = np.stack([found.projection[:, index] for found in by_block], axis=1)
        attrs = {"long_name": f"{kind} vectors, projected", "units": "activation"}
        dims = ("step", "block", "vector", "axis")
        variables[f"{kind}_projection"] = dims, np.float32(projection), attrs | {"formula": FORMULA}
    coords = {"step": list(tables), "block": like.block, "axis": [1, 2]}
    coords |= {name: like.coords[name] for name in ("window", "position_in_window")}
    about = {"head": like.attrs["head"], "source": SOURCE}
    table = xr.Dataset(variables, coords)
    for name in table:
        table[name].attrs |= about
    return table
