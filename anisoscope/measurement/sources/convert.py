"""What somebody gives, as arrays in float32: ValueError, one line, where its numbers would be others there."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr

LOST = 1e-4  # of the spread, that rounding to float32 may lose
EXACT = 2**53  # beyond it float64 has no odd numbers
OF_WIDTH = ("feature", "features", "width", "hidden", "hidden_size", "embedding", "embedding_dim", "d_model", "neuron")
OF_LAYERS = ("layer", "layers", "block", "blocks", "depth")
HINTS = {
    "V": "; NumPy keeps no bfloat16: save float32, or a .safetensors file",
    "c": "; pass their real part",
    "O": "; pass them as .astype('float32')",
}
SMALLEST, LARGEST = 1e-16, 1e16  # of a cloud's largest coordinate: beyond it squares leave float32


def as_arrays(vectors: Any) -> Any:
    """Lists of numbers, pandas' tables and sparse arrays as arrays of all numbers; all else as it is, not yet read."""
    import pandas as pd  # late: a wrong setting is told without it

    if isinstance(vectors, pd.DataFrame):
        return _of_frame(vectors)
    if isinstance(vectors, xr.Dataset):
        raise ValueError(f"vectors are a Dataset; pass one of its arrays: {', '.join(map(str, vectors))}")
    if isinstance(vectors, dict | set | Iterator):
        raise ValueError(f"vectors are a {type(vectors).__name__}; pass a list of arrays, and names= of the layers")
    if isinstance(vectors, jax.core.Tracer):
        raise ValueError(
            "vectors are traced; call measure outside of jax.jit, or pass the function to measure_function"
        )
    if isinstance(vectors, xr.DataArray) and vectors.ndim > 1 and vectors.dims[-2] in (*OF_WIDTH, *OF_LAYERS):
        names = ", ".join(vectors.dims)
        raise ValueError(f"vectors have the dimensions {names}; transpose them: layers first, width last")
    if hasattr(vectors, "toarray"):  # SciPy's sparse ones
        return vectors.toarray()
    if hasattr(vectors, "detach"):
        return _of_tensor(vectors)
    if not isinstance(vectors, list | tuple):
        return vectors
    if vectors and (isinstance(vectors[0], list | tuple) or getattr(vectors[0], "ndim", 0) < 2):
        if any(isinstance(row, np.ma.MaskedArray) for row in vectors):
            return np.ma.stack(vectors)
        try:
            return np.asarray(vectors)
        except ValueError as error:
            raise ValueError(f"vectors: lists of numbers must be of one length ({error})") from error
    frames = [layer for layer in vectors if isinstance(layer, pd.DataFrame)]
    if any(not frame.index.equals(frames[0].index) for frame in frames):
        raise ValueError("layers are DataFrames whose rows have different labels; bring them into one order")
    return [as_arrays(layer) for layer in vectors]


def _of_frame(frame: Any) -> np.ndarray:
    """Its numbers, where all columns hold numbers; what is missing is NaN."""
    from pandas.api.types import is_numeric_dtype

    for name, kind in frame.dtypes.items():
        if not is_numeric_dtype(kind):
            hint = "; of vectors, pass list(column)" if kind == object else ""  # noqa: E721, a pandas dtype
            raise ValueError(
                f"vectors: column {name!r} is of type {kind}, no numbers; convert it, or leave it out{hint}"
            )
        if frame.shape[1] > 1 and np.array_equal(frame[name], np.arange(len(frame))):
            raise ValueError(f"vectors: column {name!r} counts the rows; leave it out, or make it the index")
    array = frame.to_numpy()
    return array if array.dtype.kind != "O" else frame.to_numpy(float, na_value=np.nan)


def _of_tensor(vectors: Any) -> Any:
    """PyTorch's, of which parts can be taken."""
    for kind in ("nested", "meta"):
        if getattr(vectors, f"is_{kind}", False):
            raise ValueError(f"vectors: a {kind} tensor is no one array of numbers; pass a dense one")
    vectors = vectors.dequantize() if getattr(vectors, "is_quantized", False) else vectors
    return vectors if "strided" in str(getattr(vectors, "layout", "strided")) else vectors.to_dense()


def as_float32(array: Any, what: str) -> np.ndarray:
    """In float32, of whatever library; ValueError where it holds what is not finite."""
    if hasattr(array, "detach"):  # PyTorch's: also of a device, with a gradient, and of types that NumPy lacks
        array = array.detach()
        array = array.float() if "float8" in (kind := str(getattr(array, "dtype", ""))) or "bfloat16" in kind else array
        for name in ("resolve_conj", "resolve_neg"):
            array = getattr(array, name)() if hasattr(array, name) else array
        array = array.cpu().numpy()
    with np.errstate(over="ignore"):  # told below
        numbers = (
            np.ma.filled(array.astype(float), np.nan) if isinstance(array, np.ma.MaskedArray) else np.asarray(array)
        )
        if numbers.dtype.kind in "cOSUMm" or numbers.dtype.type is np.void:
            hint = HINTS.get(numbers.dtype.kind, "")
            raise ValueError(f"{what}: numbers of type {numbers.dtype} are no real ones{hint}")
        check_held(numbers, what)
        numbers = numbers.astype(np.float32)
    if not np.isfinite(numbers).all():
        count = int((~np.isfinite(numbers)).sum())
        raise ValueError(f"{what}: {count} of {numbers.size} numbers are not finite in float32; leave their points out")
    return numbers


def check_held(array: np.ndarray, what: str) -> None:
    """ValueError where float32 would round away what vectors of more digits, far from the origin, differ in."""
    if np.can_cast(array.dtype, np.float32) or array.ndim != 2 or not array.size or not np.isfinite(array).all():
        return
    if array.dtype.kind == "f":
        check_size(float(np.abs(array).max()), what)
    large = array.dtype.kind in "iu" and max(int(array.max()), -int(array.min())) >= EXACT
    wide = array.astype(np.longdouble if large or array.itemsize > 8 else np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.square(wide - wide.astype(np.float32)).sum()
        spread = np.square(wide - wide.mean(axis=0)).sum()
    if np.isfinite(lost) and lost > LOST**2 * spread > 0:
        raise ValueError(
            f"{what}: float32 would lose {np.sqrt(lost / spread):.0e} of the spread of {array.dtype.name} numbers this "
            "far from the origin; subtract the mean, which the mean cosine and the drift then do not see"
        )


def check_size(largest: float, what: str) -> None:
    """ValueError where float32 could not hold the squares of coordinates whose largest this is."""
    if largest and not SMALLEST <= largest <= LARGEST:
        raise ValueError(
            f"{what}: the largest coordinate is {largest:.1g}, and values hold between {SMALLEST:g} and {LARGEST:g}; "
            "multiply the vectors by a number"
        )
