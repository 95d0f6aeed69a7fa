"""Convert arrays of any library to float32; ValueError, one line, where numbers would change.

`metrics.*`, `measure`, `measure_attention` and files all read vectors through it.
"""

import re
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from anisoscope.metrics.cloud import scale_to_unit

LOST = 1e-4  # share of the spread that rounding to float32 may lose
EXACT = 2**53  # beyond it float64 has only even numbers
NOT_POINTS = re.compile(  # names of dimensions
    "features?|width|hidden(_size)?|embedding(_dim)?|d_model|neuron|(layer|block)s?|depth"
)
HINTS = {
    "V": "; NumPy keeps no bfloat16: save float32, or a .safetensors file",
    "c": "; pass their real part",
    "O": "; pass them as .astype('float32')",
}
SMALLEST_SQUARED, LARGEST_SQUARED = 1e-16, 1e16  # largest coordinates whose squares float32 holds


@runtime_checkable
class ArrayLike(Protocol):
    """What NumPy can read: an array of NumPy, JAX or PyTorch, a DataFrame, a memory-mapped file."""

    def __array__(self) -> np.ndarray: ...


def stack_rows(vectors: Any) -> Any:
    """Stack a vector in each entry, as pandas and object arrays keep them; leave others as is."""
    if getattr(vectors, "ndim", 0) != 1 or getattr(vectors.dtype, "kind", "") != "O":
        return vectors
    rows = [np.asarray(row) for row in vectors]
    if len({(row.shape, row.dtype.kind) for row in rows}) != 1 or rows[0].ndim != 1:
        return vectors
    if hasattr(vectors, "iloc"):
        import pandas as pd

        return pd.DataFrame(np.stack(rows), index=vectors.index)
    return np.stack(rows)


def as_arrays(vectors: Any) -> Any:
    """Convert lists of numbers, pandas' tables and sparse arrays to arrays; leave others as is."""
    if (type(vectors) is np.ndarray and vectors.dtype.kind != "O") or (
        isinstance(vectors, jax.Array) and not isinstance(vectors, jax.core.Tracer)
    ):
        return vectors
    import pandas as pd  # late: only inputs that are not arrays need it
    import xarray as xr

    vectors = stack_rows(vectors)
    if isinstance(vectors, pd.DataFrame):
        return _frame_numbers(vectors)
    if isinstance(vectors, xr.Dataset):
        raise ValueError(
            f"vectors are a Dataset; pass one of its arrays: {', '.join(map(str, vectors))}"
        )
    if (
        isinstance(vectors, xr.DataArray)
        and vectors.ndim > 1
        and NOT_POINTS.fullmatch(str(vectors.dims[-2]))
    ):
        names = ", ".join(vectors.dims)
        raise ValueError(
            f"vectors have the dimensions {names}; transpose them: layers first, width last"
        )
    if hasattr(vectors, "toarray"):  # SciPy's sparse arrays
        return vectors.toarray()
    if hasattr(vectors, "detach"):
        return _dense_tensor(vectors)
    if not isinstance(vectors, list | tuple):
        return vectors
    if vectors and (isinstance(vectors[0], list | tuple) or getattr(vectors[0], "ndim", 0) < 2):
        if any(isinstance(row, np.ma.MaskedArray) for row in vectors):
            return np.ma.stack(vectors)
        return _stack_lists(vectors)
    check_same_points(vectors)
    return [as_arrays(layer) for layer in vectors]


def _stack_lists(rows: Any) -> np.ndarray:
    """Convert nested lists of numbers, or a list of rows, to an array."""
    first = rows[0][0] if isinstance(rows[0], list | tuple) and rows[0] else None
    if getattr(first, "ndim", 0) > 1:
        raise ValueError(
            "vectors are lists of lists of arrays, as generate() returns; pass one list of layers"
        )
    try:
        return np.asarray([read_values(row, "vectors") for row in rows])
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError("vectors have rows of different lengths; pass (points, width)") from error


def _frame_numbers(frame: Any) -> np.ndarray:
    """Return a table's numbers, where all columns hold numbers; missing values become NaN."""
    from pandas.api.types import is_numeric_dtype

    for name, dtype in frame.dtypes.items():
        if not is_numeric_dtype(dtype):
            raise ValueError(
                f"vectors: column {name!r} has type {dtype}, which is not numeric; convert it, leave it "
                "out, or pass list(column) if it holds vectors"
            )
        # pandas' name of a saved index, when it is read again
        saved = name == "Unnamed: 0" and "Unnamed: 1" not in frame
        if frame.shape[1] > 1 and (saved or np.array_equal(frame[name], np.arange(len(frame)))):
            raise ValueError(
                f"vectors: column {name!r} numbers the rows; leave it out, or make it the index"
            )
    array = frame.to_numpy()
    if array.dtype.kind != "O":
        return array
    # pandas' own types, in which a number may be missing
    dtype = np.result_type(*(getattr(dtype, "numpy_dtype", dtype) for dtype in frame.dtypes))
    return frame.to_numpy(dtype if dtype.kind == "f" else float, na_value=np.nan)


def _dense_tensor(tensor: Any) -> Any:
    """Convert a PyTorch tensor to one that can be sliced: dequantized, not sparse."""
    tensor = tensor.dequantize() if getattr(tensor, "is_quantized", False) else tensor
    dense = "strided" in str(getattr(tensor, "layout", "strided"))
    return tensor if dense else tensor.to_dense()


def check_values(array: Any, what: str) -> None:
    """Raise ValueError where an array has a shape, but no values any more."""
    if hasattr(array, "is_deleted") and array.is_deleted():
        raise ValueError(f"{what}: this array of JAX was deleted or donated; pass a copy")
    if getattr(array, "is_nested", False):
        raise ValueError(f"{what}: a nested tensor has no shape; pass torch.cat(x.unbind())")
    if getattr(array, "is_meta", False):
        raise ValueError(f"{what}: a tensor on the device meta has a shape and no values")


def read_values(array: Any, what: str) -> Any:
    """Bring an array to where NumPy reads it; ValueError where it has no values."""
    check_values(array, what)
    # PyTorch's: also on a device, with a gradient, and of types that NumPy lacks
    if hasattr(array, "detach"):
        array = array.detach()
        dtype = str(getattr(array, "dtype", ""))
        array = array.float() if "float8" in dtype or "bfloat16" in dtype else array
        array = array.cpu().numpy()
    return array


def real_numbers(array: Any, what: str) -> np.ndarray:
    """Convert to a NumPy array of real numbers; ValueError for other types and masked numbers."""
    array = read_values(array, what)
    if np.ma.is_masked(array):
        raise ValueError(
            f"{what}: {np.ma.count_masked(array)} of {array.size} numbers are masked; leave their points out"
        )
    array = np.asarray(array)
    if array.dtype.names is not None:
        raise ValueError(
            f"{what}: an array of the fields {', '.join(array.dtype.names)} is no matrix; convert it "
            "by numpy.lib.recfunctions.structured_to_unstructured"
        )
    if array.dtype.kind in "cOSUMm" or array.dtype.type is np.void:
        hint = HINTS.get(array.dtype.kind, "")
        raise ValueError(f"{what}: values of type {array.dtype} are not real numbers{hint}")
    return array


def as_float32(array: Any, what: str) -> np.ndarray:
    """Convert to float32; ValueError where a value is not finite."""
    array = real_numbers(array, what)
    check_precision(array, what)
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        places = np.argwhere(~np.isfinite(array))
        raise ValueError(
            f"{what}: {len(places)} of {array.size} numbers are not finite in float32, the first at "
            f"{places[0].tolist()}; leave their points out"
        )
    return array


def as_vectors(array: Any, what: str) -> np.ndarray:
    """Convert vectors by `as_float32`, and check that float32 holds their squares too."""
    vectors = as_float32(array, what)
    check_magnitude(float(np.abs(vectors).max(initial=0)), what)
    return vectors


def matrix(x: ArrayLike, about_mean: bool = True, any_size: bool = True, what: str = "x") -> Array:
    """Read a matrix in float32, checked as `measure` checks vectors; NaN where a traced one fails.

    `about_mean` and `any_size`: the metric does not depend on the origin, or the size, of a cloud.
    """
    if not isinstance(x, jax.core.Tracer):
        return jnp.asarray(as_matrix(x, what, about_mean, any_size))
    if x.dtype.kind not in "biufV":  # V: bfloat16
        raise ValueError(f"{what}: values of type {x.dtype} are not real numbers")
    check_matrix(x.shape, what)
    if about_mean and x.dtype == jnp.float64:
        fits = (x.astype(jnp.float32) == x).all()
        x = jnp.where(fits, x, x - x.mean(axis=0, keepdims=True))
    x_PD = x.astype(jnp.float32)
    # a CPU treats a float below 1e-38 as 0
    bits = (jax.lax.bitcast_convert_type(x_PD, jnp.uint32) & 0x7FFFFFFF).max()
    least, most = np.float32(
        (1e-30, 1e38) if any_size else (SMALLEST_SQUARED, LARGEST_SQUARED)
    ).view(np.uint32)
    sized = (bits == 0) | (least <= bits) & (bits <= most)
    read_PD = scale_to_unit(x_PD) if any_size else x_PD
    return jnp.where(sized & keeps_spread(x, x_PD), read_PD, jnp.nan)


def matrix_pair(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Read two matrices of the same points, matched by the labels of their rows if they have any."""
    x_PD, y_PE = matrix(x), matrix(order_rows(y, x, "y"), what="y")
    if x_PD.shape[0] != y_PE.shape[0]:
        raise ValueError(
            f"x has {x_PD.shape[0]} points and y has {y_PE.shape[0]}; pass the same points in both"
        )
    return x_PD, y_PE


def as_matrix(x: Any, what: str, about_mean: bool, any_size: bool) -> np.ndarray:
    """Convert by `as_vectors` one matrix with two rows or more.

    Where float32 would lose digits and the metric allows it, the mean is subtracted, or the matrix
    is multiplied by a power of two.
    """
    x = real_numbers(as_arrays(x), what)
    check_matrix(x.shape, what)
    if about_mean and not _fits_float32(x) and np.isfinite(x).all():
        with np.errstate(over="ignore"):
            x = _wide(x) - _wide(x).mean(axis=0)
    largest = float(np.abs(x).max())
    if any_size and 0 < largest < np.inf and not SMALLEST_SQUARED <= largest <= LARGEST_SQUARED:
        x = np.ldexp(_wide(x), -np.frexp(largest)[1])
    return as_vectors(x, what)


def _fits_float32(x: np.ndarray) -> bool:
    """Return whether float32 holds every number exactly, as where it was the type before."""
    if np.can_cast(x.dtype, np.float32):
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return np.array_equal(x.astype(np.float32).astype(x.dtype), x)


def check_matrix(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != 2 or shape[0] < 2 or shape[1] < 1:
        raise ValueError(f"{what} has shape {shape}; pass (points, width) with two points or more")


def order_rows(labeled: Any, x: Any, what: str) -> Any:
    """Put rows into the order of x by their indexes, where both have one."""
    labels, index = point_index(labeled, 0), point_index(x, -2)
    if labels is None or index is None or labels.equals(index):
        return labeled
    if not (index.is_unique and labels.is_unique and index.isin(labels).all()):
        hint = f"whose index differs from that of the vectors; pass {what}.to_numpy()"
        raise ValueError(f"{what} is a {type(labeled).__name__} {hint}")
    order = labels.get_indexer(index)
    if hasattr(labeled, "isel"):
        return labeled.isel({labeled.dims[0]: order})
    return labeled.iloc[order]


def check_same_points(layers: Iterable[Any]) -> None:
    """Raise ValueError where the points of layers have labels that differ."""
    indexes = [index for x in layers if (index := point_index(x, -2)) is not None]
    if not all(index.equals(indexes[0]) for index in indexes):
        raise ValueError("the points of layers have different labels; put all into one order")


def point_index(x: Any, axis: int) -> Any:
    """Return the labels of points: the index, or a DataArray's coordinate along dimension `axis`."""
    if getattr(x, "ndim", 0) < -axis:  # a row: its labels are of columns
        return None
    if hasattr(x, "iloc"):
        return x.index
    return x.indexes.get(x.dims[axis]) if hasattr(x, "indexes") else None


def _wide(array: np.ndarray) -> np.ndarray:
    """Convert to a type that holds all digits."""
    large = array.dtype.kind in "iu" and max(int(array.max()), -int(array.min())) >= EXACT
    return array.astype(np.longdouble if large or array.itemsize > 8 else np.float64, copy=False)


def check_precision(array: np.ndarray, what: str) -> None:
    """Raise ValueError where float32 would round away the differences of vectors far from the origin."""
    if np.can_cast(array.dtype, np.float32) or array.ndim != 2 or not array.size:
        return
    if not np.isfinite(array).all():
        return
    if array.dtype.kind == "f":
        check_magnitude(float(np.abs(array).max()), what)
    wide = _wide(array)
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.square(wide - wide.astype(np.float32)).sum()
        spread = np.square(wide - wide.mean(axis=0)).sum()
    if np.isfinite(lost) and lost > LOST**2 * spread > 0:
        raise ValueError(
            f"{what}: float32 would lose {np.sqrt(lost / spread):.0e} of the spread of {array.dtype.name} numbers this "
            "far from the origin; subtract the mean, which the mean cosine and the drift then do not see"
        )


def keeps_spread(wide: jax.Array, single: jax.Array) -> jax.Array:
    """Return whether float32 keeps the differences of traced vectors, as `check_precision` asks."""
    lost = (wide - single.astype(wide.dtype)).astype(np.float32)
    spread = single - single.mean(axis=-2, keepdims=True)
    return (lost**2).sum() <= LOST**2 * (spread**2).sum()


def check_magnitude(largest: float, what: str) -> None:
    """Raise ValueError where float32 could not hold the squares of coordinates as large as this."""
    if largest and not SMALLEST_SQUARED <= largest <= LARGEST_SQUARED:
        raise ValueError(
            f"{what}: the largest coordinate is {largest:.1g}, and the range is "
            f"{SMALLEST_SQUARED:g} to {LARGEST_SQUARED:g}; rescale the vectors"
        )
