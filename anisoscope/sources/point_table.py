"""Numbers of each point of a cloud: which vector is the long one, and where is the cloud wide?"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

from anisoscope.metrics import scale
from anisoscope.metrics.convert import ArrayLike, as_vectors
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.results.missing_names import as_table
from anisoscope.sources import array_checks
from anisoscope.sources.array_checks import VectorsLike
from anisoscope.utils.progress import library_call, progress_bar

LOCAL_NEIGHBORS = 20
POINT = ("layer", "point")
ABOUT = {  # attributes of each variable
    "norm": {"long_name": "norm of the vector", "formula": "|x|", "units": "activation"},
    "cosine_to_mean": {
        "long_name": "cosine between the vector and the mean vector",
        "formula": "<x, m> / (|x| |m|), m = mean(x)",
        "units": "1",
    },
    "local_dimension": {
        "long_name": f"dimension around the point, from its {LOCAL_NEIGHBORS} nearest neighbors",
        "formula": "(k - 2) / sum_{j<k} ln(T_k / T_j)",
        "units": "1",
        "source": "Levina and Bickel 2004",
    },
}


def measure_points(
    x: VectorsLike,
    *,
    axes: Sequence[str] | None = None,
    mask: ArrayLike | Sequence[Sequence[int]] | None = None,
    layer_names: Sequence[str] | None = None,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure each point: its norm, its cosine to the mean, and the dimension around it.

    Args:
        x: one layer (points, width), or a list or dict of layers, as for `measure`.
        axes: as for `measure`.
        mask: as for `measure`, where layers are (texts, tokens, width).
        layer_names: as for `measure`.
        quiet: show neither a progress bar (after ten seconds) nor the message about compiling.

    Returns:
        A Dataset of `norm`, `cosine_to_mean` and `local_dimension` with the dimensions (layer,
        point), without layer where x is one layer. Of texts each point has the coordinates `text`
        and `token`, numbered from 0 without padding. No intervals: a point is no sample.

    Raises:
        ValueError: the input cannot be measured; the message is one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((8, 16, 4))  # texts, tokens, width
    >>> x[3, 5] *= 100
    >>> table = measure_points([x], mask=np.ones((8, 16)))
    >>> longest = table.isel(point=table.norm.argmax("point").item())
    >>> int(longest.text), int(longest.token)
    (3, 5)
    """
    with library_call(quiet), jax.enable_x64(False):
        vectors = array_checks.read_vectors(x, None, None, axes, mask)
        names = array_checks.choose_names(layer_names, vectors)
        layers = list(range(len(vectors.layers))) if names is None else list(names)
        found = [
            read_points_of_layer(as_vectors(layer, f"vectors of layer {n}"))
            for n, layer in enumerate(progress_bar(vectors.layers, "measure_points", "layer"))
        ]
    table = xr.Dataset(
        {name: (POINT, np.stack([x[name] for x in found]), about) for name, about in ABOUT.items()},
        coords={"layer": layers, "point": np.arange(vectors.shape[0])},
    )
    if vectors.texts:
        table = table.assign_coords(
            text=("point", vectors.cluster_P), token=("point", vectors.time_P)
        )
    return as_table(table.isel(layer=0, drop=True) if vectors.single else table)


def read_points_of_layer(cloud_PD: np.ndarray) -> Mapping[str, Any]:
    """Compute the values of each point of a layer, in float64 but for the search of neighbors."""
    x_PD = np.asarray(cloud_PD, np.float64)
    norm_P, mean_D = np.linalg.norm(x_PD, axis=1), x_PD.mean(axis=0)
    with np.errstate(invalid="ignore"):  # a zero vector has no direction: NaN
        cosine_P = x_PD @ mean_D / (norm_P * np.linalg.norm(mean_D))
    local_P = search_dimensions(cloud_PD)
    return {"norm": norm_P, "cosine_to_mean": cosine_P, "local_dimension": np.asarray(local_P)}


@jax.jit
@jax.default_matmul_precision("highest")
def search_dimensions(cloud_PD: jax.Array) -> jax.Array:
    """Compute the dimension around each point of a cloud."""
    return scale.local_dimensions(nearest_neighbors(cloud_PD, LOCAL_NEIGHBORS), LOCAL_NEIGHBORS)
