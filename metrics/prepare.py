"""From what a user gives to what a metric takes: a float32 matrix, and a compiled program that
reads it.
"""

import functools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from anisoscope.metrics import comparison, convert, lapack
from anisoscope.metrics.cloud import of_unit_size
from anisoscope.metrics.neighbours import Neighbours, nearest_neighbours
from anisoscope.metrics.spectrum import Spectrum, spectrum
from anisoscope.metrics.top import top_eigenvalue


@runtime_checkable
class ArrayLike(Protocol):
    """What NumPy can read: an array of NumPy, JAX or PyTorch, a DataFrame, a memory-mapped file."""

    def __array__(self) -> np.ndarray: ...


def matrix(x: ArrayLike, about_mean: bool = True, any_size: bool = True, what: str = "x") -> Array:
    """In float32, checked as `measure` checks vectors; of a traced array NaN stands for what would
    be refused.

    `about_mean` and `any_size` are of metrics that do not see the origin, or the size, of a cloud.
    """
    if not isinstance(x, jax.core.Tracer):
        return jnp.asarray(convert.as_matrix(x, what, about_mean, any_size))
    if x.dtype.kind not in "biufV":  # V: bfloat16
        raise ValueError(f"{what}: numbers of type {x.dtype} are no real ones")
    convert.check_matrix(x.shape, what)
    x = x - x.mean(axis=0, keepdims=True) if about_mean and x.dtype == jnp.float64 else x
    x_PD = x.astype(jnp.float32)
    # a CPU takes a float below 1e-38 for 0
    bits = (jax.lax.bitcast_convert_type(x_PD, jnp.uint32) & 0x7FFFFFFF).max()
    least, most = np.float32(
        (1e-30, 1e38) if any_size else (convert.SMALLEST, convert.LARGEST)
    ).view(np.uint32)
    sized = (bits == 0) | (least <= bits) & (bits <= most)
    return jnp.where(
        sized & convert.held(x, x_PD), of_unit_size(x_PD) if any_size else x_PD, jnp.nan
    )


def compiled(read: Callable[..., Array]) -> Callable[..., Array]:
    """Compiled once for each shape and k, in float32 whatever `jax_enable_x64` is; products keep
    all their digits.
    """

    @functools.partial(jax.jit, static_argnames=("k",))
    def compute(*matrices: Array, **k: int) -> Array:
        with jax.default_matmul_precision("highest"):
            return read(*matrices, **k)

    def computed(*matrices: Array, **k: int) -> Array:
        with jax.enable_x64(False):
            if jax.default_backend() != "cpu" or any(
                isinstance(x, jax.core.Tracer) for x in matrices
            ):
                return compute(*matrices, **k)
            with lapack.threads_for(min(matrices[0].shape)):
                return jax.block_until_ready(compute(*matrices, **k))

    return computed


def of_spectrum(read: Callable[[Spectrum], Array]) -> Callable[..., Array]:
    return compiled(lambda x_PD: read(jax.tree.map(lambda field_R: field_R[0], spectrum(x_PD))))


def of_two_neighbours(read: Callable[..., Array]) -> Callable[..., Array]:
    return compiled(lambda x_PD: read(search(x_PD, 2)))


def top_share(x_PD: Array) -> Array:
    """Of the uncentred scatter; `spectrum.anisotropy_uncentred` has a bisection, which has no
    gradient.
    """
    x_PD = of_unit_size(x_PD)
    square = x_PD.T @ x_PD if x_PD.shape[0] >= x_PD.shape[1] else x_PD @ x_PD.T
    return jnp.minimum(top_eigenvalue(square) / jnp.trace(square), 1.0)  # rounding


def overlap(x_PD: Array, y_PE: Array, k: int) -> Array:
    x, y = (
        comparison.nearest(nearest_neighbours(cloud_PD, max(k, 2)), k) for cloud_PD in (x_PD, y_PE)
    )
    return comparison.neighbourhood_overlap(x, y)


def search(x_PD: Array, count: int) -> Neighbours:
    """The neighbours; which they are has no gradient, and their distances have that of the
    subtraction.
    """
    neighbours = jax.lax.stop_gradient(nearest_neighbours(jax.lax.stop_gradient(x_PD), count))
    square_PC = jnp.square(x_PD[:, None] - x_PD[neighbours.index_PC]).sum(axis=-1)
    apart_PC = square_PC > 0
    again_PC = jnp.where(apart_PC, jnp.sqrt(jnp.where(apart_PC, square_PC, 1.0)), 0.0)
    return neighbours._replace(
        distance_PC=neighbours.distance_PC + (again_PC - jax.lax.stop_gradient(again_PC))
    )


def pair(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Two matrices of the same points; of frames, or of arrays with coordinates, by the labels of
    their rows.
    """
    x_PD, y_PE = matrix(x), matrix(convert.in_order(y, x, "y"), what="y")
    if x_PD.shape[0] != y_PE.shape[0]:
        raise ValueError(
            f"x has {x_PD.shape[0]} points, y {y_PE.shape[0]}; the same points are needed"
        )
    return x_PD, y_PE


def check_neighbours(k: int, least: int, points: int) -> None:
    if not least <= k < points:
        raise ValueError(
            f"k is {k}; from {least} to {points - 1} neighbours can be read of {points} points"
        )
