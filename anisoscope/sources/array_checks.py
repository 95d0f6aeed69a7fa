"""What somebody gives to be measured, checked and read: ValueError, one line, where it cannot
be.
"""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.resampling import Places
from anisoscope.metrics.convert import (
    EXACT,
    as_arrays,
    as_float32,
    as_vectors,
    check_held,
    in_order,
    real_numbers,
)
from anisoscope.utils.settings import LARGEST_SEED

OF_VECTORS, OF_HEADS = ("cloud", "layers"), ("heads",)  # what families are of
NULLS = ("gaussian",)  # the null models that are made of a cloud alone
FEWEST = 8  # points


def settings_of(
    families: tuple[str, ...], nulls: Sequence[str], folds: int, seed: int
) -> MeasureConfig:
    if nulls is None:
        raise ValueError("nulls is None; pass () for no null model")
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls)
    for null in nulls:
        if null not in NULLS:
            raise ValueError(
                f"nulls: {null!r} cannot be made of arrays alone; choose from {', '.join(NULLS)}"
            )
    check_once("nulls", nulls)
    if not isinstance(folds, numbers.Integral) or folds < 1:
        raise ValueError(f"folds is {folds}; it must be a whole number, at least 1")
    if not isinstance(seed, numbers.Integral) or not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed is {seed}; it must be a whole number from 0 to {LARGEST_SEED}")
    return MeasureConfig(families=families, nulls=nulls, folds=int(folds), seed=int(seed))


def check_once(what: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"{what} are {', '.join(names)}; name each once")


def chosen(
    families: str | Sequence[str], of: tuple[str, ...], single: bool, what: str = "these arrays"
) -> tuple[str, ...]:
    """The families that are asked for, "all" for what clouds or heads allow; one layer has none to
    compare with.
    """
    there = {
        name: family for name, family in FAMILIES.items() if family.of in of and not family.of_text
    }
    allowed = [name for name, family in there.items() if not (single and family.of == "layers")]
    named = (families,) if isinstance(families, str) else tuple(families)
    wanted = tuple(allowed) if named == ("all",) else named
    if not wanted:
        raise ValueError(f"families: none is named; choose from {', '.join(allowed)}")
    check_once("families", wanted)
    for name in wanted:
        if name not in allowed:
            raise ValueError(
                f"families: {name!r} cannot be measured of {what}; choose from {', '.join(allowed)}"
            )
    return wanted


def aligned(given: Any, x: Any, what: str) -> np.ndarray | None:
    """Labels or positions, in the order of the points: by the index of both where both have one."""
    if given is None:
        return None
    import pandas as pd

    given = in_order(given, x[0] if isinstance(x, list | tuple) and len(x) else x, what)
    if masked := np.ma.count_masked(given) if isinstance(given, np.ma.MaskedArray) else 0:
        raise ValueError(f"{what}: {masked} of {given.size} are masked; leave their points out")
    array = np.asarray(given)
    if what == "clusters" and isinstance(given, list | tuple) and array.dtype.kind in "fUS":
        kinds = {type(one) for one in given}
        if len(kinds) > 1 or kinds == {int}:  # of which NumPy makes words, or floats that are equal
            return pd.Series(given, dtype=object).to_numpy()
    return array


def layers_of(vectors: Any) -> list[Any]:
    """The layers, not yet read; ValueError where their shape is none of vectors."""
    if isinstance(vectors, list | tuple):
        shapes = {np.shape(layer) for layer in vectors}
        if len(shapes) != 1:
            raise ValueError(f"layers have the shapes {sorted(shapes)}; all must be of one")
        shape = (len(vectors), *shapes.pop())
    else:
        shape = np.shape(vectors)
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(
            f"vectors have shape {shape}; (points, width) or (layers, points, width) is needed"
        )
    if shape[-2] < FEWEST:
        raise ValueError(f"vectors have {shape[-2]} points; at least {FEWEST} are needed")
    return [vectors] if len(shape) == 2 else [vectors[number] for number in range(shape[0])]


def places_of(points: int, clusters: Sequence | None, positions: Sequence | None) -> Places | None:
    """Window and place of each point; a place of -1 where none is given. None without clusters."""
    if positions is not None and (clusters is None or np.shape(positions) != (points,)):
        raise ValueError(
            f"positions have shape {np.shape(positions)}; one for each of {points} points is needed, and clusters"
        )
    if clusters is None:
        return None
    time_P = np.full(points, -1) if positions is None else np.asarray(positions)
    if time_P.dtype.kind not in "iuf":
        raise ValueError(f"positions are of type {time_P.dtype}; whole numbers are needed")
    whole_P = np.isfinite(time_P) & (time_P == np.floor(time_P)) & (np.abs(time_P) < 2.0**31)
    if not whole_P.all():
        raise ValueError(
            f"positions: {time_P[~whole_P][0]} is no whole number below 2^31, as {(~whole_P).sum()} of {points}"
        )
    if positions is not None and time_P.min() < 0:
        raise ValueError(
            f"positions: {time_P.min()} is below 0, the first token of a cluster; count from there"
        )
    return Places(labels(points, clusters)[0].astype(np.int32), time_P.astype(np.int32))


def labels(points: int, clusters: Sequence | None) -> tuple[np.ndarray, np.ndarray]:
    """The number of each point's cluster, and what the clusters are called; ValueError where these
    are no labels.
    """
    if clusters is None:
        return np.zeros(points, int), np.zeros(1, int)
    import pandas as pd

    label_P = np.asarray(clusters)
    if label_P.shape != (points,):
        raise ValueError(
            f"clusters have shape {label_P.shape}; a label for each of the {points} points is needed"
        )
    missing_P = pd.isna(label_P)
    if missing_P.any():
        raise ValueError(
            f"clusters: {missing_P.sum()} of {points} labels are missing (None or NaN); leave their points out"
        )
    if label_P.dtype.kind == "c":
        raise ValueError(f"clusters are of type {label_P.dtype}; numbers or words are needed")
    float_P = (
        label_P
        if label_P.dtype.kind == "f"
        else np.array([one for one in label_P if isinstance(one, float)])
    )
    exact = min(EXACT, 2.0 ** (np.finfo(float_P.dtype).nmant + 1)) if float_P.size else np.inf
    if (largest := float(np.abs(float_P).max(initial=0))) >= exact:
        kind = float_P.dtype
        raise ValueError(
            f"clusters are of type {kind} and reach {largest:.0e}; pass integers: some are equal"
        )
    try:
        names, number_P = np.unique(label_P, return_inverse=True)
    except TypeError as error:
        raise ValueError(
            f"clusters: labels are of several kinds ({error}); numbers or words are needed"
        ) from error
    return number_P, names


def heads_of(queries: Any, keys: Any, mask: Any, bias: Any) -> Heads:
    """All positions of all windows; ValueError where the shapes do not fit together."""
    q_NHBTK, k_NHBTK = _heads(queries, "queries"), _heads(keys, "keys")
    if q_NHBTK.ndim != 5 or q_NHBTK.shape != k_NHBTK.shape or 0 in q_NHBTK.shape:
        raise ValueError(
            f"queries have shape {q_NHBTK.shape}, keys {k_NHBTK.shape}; both must be (layers, heads, windows, T, K), "
            "none of them 0: repeat keys that several heads share"
        )
    layers, heads, windows, context, _ = q_NHBTK.shape
    named = {
        "causal": np.tril(np.ones((context, context), bool)),
        "bidirectional": np.ones((context, context), bool),
    }
    if not isinstance(mask, str) or mask not in named:
        named[mask := "given"] = np.asarray(mask)
    visible = named[mask]
    if visible.dtype != bool or visible.shape not in (
        (context, context),
        (layers, context, context),
    ):
        raise ValueError(
            f"mask has shape {visible.shape}, dtype {visible.dtype}; pass causal, bidirectional, or booleans "
            f"({context}, {context}) or ({layers}, {context}, {context})"
        )
    bias_NHTT = None
    if bias is not None:
        try:
            bias_NHTT = np.broadcast_to(as_float32(bias, "bias"), (layers, heads, context, context))
        except ValueError as error:
            wanted = f"{(layers, heads, context, context)} is needed, or what broadcasts to it"
            raise ValueError(
                f"bias has shape {np.shape(bias)}: {error}; finite, {wanted}"
            ) from error
    q_NBTHK, k_NBTHK = (np.moveaxis(x_NHBTK, 1, 3) for x_NHBTK in (q_NHBTK, k_NHBTK))
    return Heads(q_NBTHK, k_NBTHK, np.arange(windows * context), visible, bias_NHTT)


def _heads(vectors: Any, what: str) -> np.ndarray:
    """In float32; what it would lose is asked for each head, whose offset is its own."""
    vectors = real_numbers(as_arrays(vectors), what)
    if vectors.ndim == 5:
        for layer, head in np.ndindex(vectors.shape[:2]):
            check_held(
                vectors[layer, head].reshape(-1, vectors.shape[-1]),
                f"{what} of layer {layer}, head {head}",
            )
    return as_vectors(vectors, what)


def check_names(names: Sequence[str] | None, layers: int) -> None:
    if isinstance(names, str):
        raise ValueError(f"names is {names!r}, one word; pass a list of {layers} names")
    if names is not None and (len(names) != layers or len(set(names)) < layers):
        raise ValueError(
            f"names are {len(names)}, {len(set(names))} of them different, of {layers} layers"
        )
