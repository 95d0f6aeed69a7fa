"""Find layers, texts, tokens and points among the axes of what a user passes.

Three axes may be (layers, points, width) or (texts, tokens, width): names tell which, or a list of
layers, or a mask of the same texts and tokens. Nothing is guessed from sizes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anisoscope.metrics.convert import ArrayLike, as_arrays, check_values, real_numbers, stack_rows

LAYER_AXIS, TEXT_AXIS, TOKEN_AXIS, POINT_AXIS, WIDTH_AXIS = (
    "layer",
    "text",
    "token",
    "point",
    "width",
)
TEXTS = (TEXT_AXIS, TOKEN_AXIS, WIDTH_AXIS)
ORDERS = (
    (POINT_AXIS, WIDTH_AXIS),
    (LAYER_AXIS, POINT_AXIS, WIDTH_AXIS),
    TEXTS,
    (LAYER_AXIS, *TEXTS),
)
SYNONYMS = {  # dimensions of a DataArray, in the singular
    "block": LAYER_AXIS,
    "hook_point": LAYER_AXIS,
    "depth": LAYER_AXIS,
    **dict.fromkeys(("batch", "sentence", "sequence", "window", "image", "prompt"), TEXT_AXIS),
    **dict.fromkeys(("seq", "time", "position", "place", "patch"), TOKEN_AXIS),
    **dict.fromkeys(("row", "sample", "vector"), POINT_AXIS),
    **dict.fromkeys(
        ("feature", "hidden", "hidden_size", "embedding", "d_model", "dim"), WIDTH_AXIS
    ),
}
ASK = (
    "say which: pass a list of layers, or axes=('layer', 'point', 'width') or "
    "axes=('text', 'token', 'width'), in a shell --axes=text,token,width"
)


class Layers(NamedTuple):
    """Layers as they were passed: (points, width) each, or (texts, tokens, width) each."""

    arrays: list[Any]
    texts: bool  # the points are tokens of texts
    single: bool  # one layer, no list
    names: list[str] | None  # keys of a dict


def split_layers(x: Any, axes: Sequence[str] | None = None, mask: Any = None) -> Layers:
    """Split what a user passes into layers; ValueError where axes can be read in two ways."""
    names = None
    axes = axes.split(",") if isinstance(axes, str) else axes  # as in a shell
    check_values(x, "vectors")
    if isinstance(x, Mapping) and hasattr(x, "hidden_states"):
        raise ValueError("vectors are the output of a model; pass its .hidden_states")
    if is_named(x):
        x, names = _named_layers(x)
    check_columns(x)
    x = as_arrays(x if isinstance(x, list | tuple) or hasattr(x, "shape") else _as_rows(x))
    for array in x if isinstance(x, list | tuple) else [x]:
        check_values(array, "vectors")
    if not isinstance(x, list | tuple):
        order = find_order(x, axes, mask)
        layers = [x[number] for number in range(len(x))] if LAYER_AXIS in order else [x]
        return Layers(layers, TOKEN_AXIS in order, LAYER_AXIS not in order, None)
    if not x:
        raise ValueError("vectors are an empty list; pass at least one layer")
    if axes is not None and LAYER_AXIS in axes:
        raise ValueError(f"axes are {tuple(axes)}, of a list of layers: name those of a layer")
    orders = {find_order(layer, axes, mask, in_list=True) for layer in x}
    if len(orders) > 1 or LAYER_AXIS in (order := orders.pop()):
        shapes = [np.shape(layer) for layer in x]
        raise ValueError(f"layers have the shapes {shapes}; pass the same axes in each")
    return Layers([*x], TOKEN_AXIS in order, False, names)


def is_named(x: Any) -> bool:
    """Return whether x is a dict of layers, or read as one: no table, no data set of xarray."""
    read = all(hasattr(x, name) for name in ("keys", "items", "__getitem__"))
    return read and not hasattr(x, "dims") and not hasattr(x, "ndim")


def _as_rows(x: Any) -> Any:
    """Convert what has no shape, such as a column of Arrow, to an array or a list of layers."""
    if callable(getattr(x, "measure", None)):
        raise ValueError(f"vectors are a {type(x).__name__}; call its measure()")
    listed = hasattr(x, "__getitem__") and hasattr(x, "__len__") and len(x)
    if listed and getattr(x[0], "ndim", 0) > 1:
        return [*x]
    return stack_rows(np.asarray(x))


def _named_layers(x: Mapping) -> tuple[list[Any], list[str]]:
    """Return the layers of a dict, and its keys as their names."""
    layers = {str(name): x[name] for name in x.keys()}  # noqa: SIM118, not every one iterates
    for name, value in layers.items():
        if value is None or isinstance(value, list | tuple | Mapping) or not np.ndim(value):
            kind = "one number" if np.isscalar(value) else type(value).__name__
            inside = f"pass {name!r} of it alone" if kind in ("list", "tuple") else "leave it out"
            raise ValueError(f"layer {name!r} of the dict is no array, but {kind}; {inside}")
        if np.ndim(value) < 2:
            raise ValueError(f"layer {name!r} has shape {np.shape(value)}; pass layers alone")
    if not layers:
        raise ValueError("vectors are an empty dict; pass at least one layer")
    return [*layers.values()], [*layers]


def check_columns(x: Any) -> None:
    """Raise ValueError for a table of columns, such as a Dataset of Hugging Face."""
    columns = getattr(x, "column_names", None)
    if columns is not None and not hasattr(x, "iloc"):
        raise ValueError(
            f"vectors are a {type(x).__name__} of the columns {', '.join(map(str, columns))}; pass "
            "one as an array: numpy.array(x['column'])"
        )


def find_order(
    array: Any, axes: Sequence[str] | None, mask: Any, in_list: bool = False
) -> tuple[str, ...]:
    """Return what the axes of an array hold, one of ORDERS."""
    shape = np.shape(array)
    if axes is not None:
        order = tuple(axes)
        if order not in ORDERS or len(order) != len(shape):
            known = ", ".join(map(str, ORDERS))
            raise ValueError(f"axes are {order}, vectors have shape {shape}; choose from {known}")
        return order
    if len(shape) == 2:
        return ORDERS[0]
    if hasattr(array, "dims") and (order := _named_order(array.dims)) is not None:
        return order
    if len(shape) == 4 and not in_list:
        return ORDERS[3]
    if len(shape) == 3 and (in_list or (mask is not None and np.shape(mask) == shape[:2])):
        return TEXTS
    if len(shape) == 3:
        if mask is not None:
            raise ValueError(
                f"mask has shape {np.shape(mask)}, vectors have shape {shape}; pass a mask of shape "
                f"{shape[:2]} for (texts, tokens, width), or axes= for other orders"
            )
        raise ValueError(
            f"vectors of shape {shape} may be (layers, points, width) or (texts, tokens, width); "
            f"{ASK}"
        )
    raise ValueError(
        f"vectors have shape {shape}; pass (points, width), or a list of layers of that shape"
    )


def _named_order(dims: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the order that the dimensions of a DataArray name; None where they name none."""
    names = [str(dim).lower().removesuffix("s") for dim in dims]
    known = [SYNONYMS.get(name, name if name in sum(ORDERS, ()) else None) for name in names]
    if tuple(known) in ORDERS:
        return tuple(known)
    if len(known) == 3 and known[0] == LAYER_AXIS and known[1] != LAYER_AXIS:  # one axis of points
        return ORDERS[1]
    return None


class RealTokens(NamedTuple):
    """The tokens of texts that are no padding: P of them."""

    row_P: np.ndarray | slice  # among all positions, text after text
    text_P: np.ndarray
    place_P: np.ndarray  # from 0 at the first token of each text


def find_tokens(shape: tuple[int, ...], mask: Any) -> RealTokens:
    """Count texts and places of (texts, tokens, …); `mask` is 0 at padding, on either side."""
    size = shape[:2]
    if mask is None:
        text_P, place_P = np.divmod(np.arange(size[0] * size[1]), size[1])
        return RealTokens(slice(None), text_P, place_P)
    try:
        mask_BT = real_numbers(mask, "mask")
    except ValueError as error:
        what = f"mask is a {type(mask).__name__}; pass the array of 1 and 0 alone ({error})"
        raise ValueError(what) from error
    if mask_BT.shape != size or not np.isin(mask_BT, (0, 1)).all():
        raise ValueError(
            f"mask has shape {mask_BT.shape} and the values {np.unique(mask_BT)[:5]}; pass 1 or 0, "
            f"for padding, at each of {size[0]} texts and {size[1]} tokens"
        )
    mask_BT = mask_BT.astype(bool)
    place_BT = np.cumsum(mask_BT, axis=1) - 1
    return RealTokens(np.flatnonzero(mask_BT), np.nonzero(mask_BT)[0], place_BT[mask_BT])


def take_tokens(x: ArrayLike, row_P: np.ndarray | slice) -> Any:
    """Take tokens of (texts, tokens, width), as (points, width)."""
    x = x if hasattr(x, "reshape") else np.asarray(x)
    return x.reshape(-1, x.shape[-1])[row_P]
