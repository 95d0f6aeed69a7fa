"""Check the arrays that a user passes, and bring them into one order and type.

Input that cannot be measured raises a ValueError of one line. Letters: L clusters.
"""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import CLOUD_NULLS, INPUT_KINDS, MeasureConfig
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.metrics import logit_lens
from anisoscope.metrics.convert import (
    ArrayLike,
    as_arrays,
    as_float32,
    as_vectors,
    check_precision,
    order_rows,
    real_numbers,
)
from anisoscope.utils.settings import LARGEST_SEED

VECTOR_INPUTS, HEAD_INPUTS = ("cloud", "layers"), ("heads",)  # kinds of input that a family reads
LENS = "logit_lens"  # the family that maps every layer to logits
FEWEST = 8  # points

VectorsLike = ArrayLike | Sequence[ArrayLike]


class Vectors(NamedTuple):
    """Layers of vectors of the same P points, with the cluster and time of each point."""

    layers: list[Any]  # (P, D) each, not yet read
    cluster_P: np.ndarray | None = None  # numbers from 0
    time_P: np.ndarray | None = None  # place in the cluster; None: unknown
    single: bool = False  # one matrix, no list of layers

    @property
    def shape(self) -> tuple[int, int]:
        return np.shape(self.layers[0])


def make_settings(
    families: str | Sequence[str],
    kinds: tuple[str, ...],
    nulls: str | Sequence[str],
    folds: int,
    seed: int,
) -> MeasureConfig:
    """Check families, null models, folds and seed."""
    families = choose_families(families, kinds)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls)
    if unknown := [null for null in nulls if null not in CLOUD_NULLS]:
        known = ", ".join(CLOUD_NULLS)
        raise ValueError(f"nulls: {unknown[0]!r} cannot be made of arrays; choose from {known}")
    try:
        folds, seed = operator.index(folds), operator.index(seed)  # refuses 2.5 folds
    except TypeError as error:
        raise TypeError(f"folds is {folds!r} and seed {seed!r}; pass whole numbers") from error
    if folds < 1:
        raise ValueError(f"folds is {folds}; pass 1 or more")
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed is {seed}; pass 0 to {LARGEST_SEED}")
    return MeasureConfig(families=families, nulls=nulls, folds=folds, seed=seed)


def choose_families(
    families: str | Sequence[str], kinds: tuple[str, ...], source: str = "these arrays"
) -> tuple[str, ...]:
    """Check names of families, or list all that these kinds of input allow for "all"."""
    allowed = [
        name
        for name, family in FAMILIES.items()
        if INPUT_KINDS[name] in kinds and not family.reads_types
    ]
    names = (families,) if isinstance(families, str) else tuple(families)
    names, choices = tuple(allowed) if names == ("all",) else names, ", ".join(allowed)
    if not names or len({*names}) < len(names):
        raise ValueError(f"families are {names}; name each once, from {choices}")
    if unknown := [name for name in names if name not in allowed]:
        owners = [own for own, family in FAMILIES.items() if unknown[0] in family.quantities]
        hint = f"it is a quantity of the family {owners[0]}; " if owners else ""
        if unknown == [LENS]:
            hint = "it needs unembedding=(norm, W) of anisoscope.measure; "
        what = f"families: {unknown[0]!r} cannot be measured of {source}"
        raise ValueError(f"{what}; {hint}choose from {choices}")
    return names


def read_vectors(x: Any, clusters: Any = None, token_positions: Any = None) -> Vectors:
    """Check the shape of vectors of any library, and number the cluster of each point."""
    clusters = align(clusters, x, "clusters")
    token_positions = align(token_positions, x, "token_positions")
    x = as_arrays(x)
    if isinstance(x, list | tuple):
        shapes = [np.shape(layer) for layer in x]
        if len({*shapes}) != 1:
            raise ValueError(f"layers have the shapes {shapes}; measure these one by one")
        shape = (len(x), *shapes[0])
    else:
        shape = np.shape(x)
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(
            f"vectors have shape {shape}; (points, width) or (layers, points, width) is needed"
        )
    points = shape[-2]
    if points < FEWEST:
        raise ValueError(f"vectors have {points} points; at least {FEWEST} are needed")
    if token_positions is not None and (clusters is None or token_positions.shape != (points,)):
        raise ValueError(
            f"token_positions have shape {token_positions.shape}, vectors have {points} points; "
            "pass one position per point, and clusters"
        )
    layers = [x] if len(shape) == 2 else [x[number] for number in range(shape[0])]
    cluster_P = None if clusters is None else number_clusters(points, clusters)
    if (time_P := token_positions) is not None:
        numbers = time_P.dtype.kind in "iuf"
        if not numbers or not ((time_P >= 0) & (time_P < 2**31) & (time_P % 1 == 0)).all():
            raise ValueError(
                "token_positions must be whole numbers below 2^31, 0 at the first of each cluster"
            )
        time_P = time_P.astype(np.int32)
    return Vectors(layers, cluster_P, time_P, len(shape) == 2)


def align(labels: Any, x: Any, name: str) -> np.ndarray | None:
    """Bring labels into the order of the points, by index where both have one."""
    if labels is None:
        return None
    labels = order_rows(labels, x[0] if isinstance(x, list | tuple) and len(x) else x, name)
    if np.ma.is_masked(labels):
        raise ValueError(f"{name}: labels are masked; leave their points out")
    # NumPy would convert a list to strings, or round large integers to equal floats
    in_list = name == "clusters" and isinstance(labels, list | tuple)
    unconverted = in_list and not all(isinstance(label, float) for label in labels)
    return np.asarray(labels, object if unconverted else None)


def number_clusters(points: int, label_P: np.ndarray) -> np.ndarray:
    """Assign numbers from 0 to labels in sorted order; refuse labels that rounding could merge."""
    import pandas as pd

    if label_P.shape != (points,):
        raise ValueError(
            f"clusters have shape {label_P.shape}; pass a label for each of {points} points"
        )
    if label_P.dtype.kind == "f":
        largest = np.nanmax(np.abs(label_P), initial=0)
        if largest >= 2.0 ** (np.finfo(label_P.dtype).nmant + 1):
            raise ValueError(
                f"clusters are of type {label_P.dtype} and reach {largest:.0e}; "
                "floats of that size merge neighboring integers; pass integers"
            )
    number_P = pd.factorize(label_P, sort=True)[0]
    if missing := int((number_P < 0).sum()):
        raise ValueError(
            f"clusters: {missing} of {points} labels are missing; leave their points out"
        )
    return number_P


def read_lens(
    unembedding: Any, target_P: np.ndarray | None, points: int
) -> tuple[logit_lens.Unembedding, np.ndarray] | None:
    """Read the pair (norm, W), and check the tokens to predict, below 0 for none."""
    if unembedding is None:
        if target_P is not None:
            raise ValueError("targets are read with an unembedding: pass unembedding=(norm, W) too")
        return None
    norm, unembedding = unembedding
    unembedding_VD = as_float32(unembedding, "unembedding's W")
    target_P = np.full(points, -1) if target_P is None else target_P
    if target_P.shape != (points,) or target_P.dtype.kind not in "iu":
        raise ValueError(
            f"targets have shape {target_P.shape}, dtype {target_P.dtype}; "
            f"a whole number for each of {points} points is needed"
        )
    if target_P.max() >= (size := len(unembedding_VD)):
        raise ValueError(f"targets reach {target_P.max()}; W has {size} tokens, numbered from 0")
    target_P = np.maximum(target_P.astype(np.int64), -1).astype(np.int32)
    fields = {key: value for key, value in (norm or {"kind": "none"}).items() if value is not None}
    for name in {"scale", "shift"} & fields.keys():
        fields[name] = as_float32(fields[name], f"unembedding's {name}")
    kind = fields.pop("kind")
    return logit_lens.build_unembedding(unembedding_VD.T, kind, **fields), target_P


def read_heads(queries: Any, keys: Any, mask: Any, bias: Any) -> Heads:
    """Check queries, keys, mask and bias of `measure_attention`, and take all positions."""

    def read(vectors: Any, name: str) -> np.ndarray:
        vectors = real_numbers(as_arrays(vectors), name)
        for place in np.ndindex(vectors.shape[:2]) if vectors.ndim == 5 else ():
            head_PK = vectors[place].reshape(-1, vectors.shape[-1])
            check_precision(head_PK, f"{name} of layer {place[0]}, head {place[1]}")
        return as_vectors(vectors, name)

    q_NHBTK, k_NHBTK = read(queries, "queries"), read(keys, "keys")
    if q_NHBTK.ndim != 5 or q_NHBTK.shape != k_NHBTK.shape or 0 in q_NHBTK.shape:
        raise ValueError(
            f"queries have shape {q_NHBTK.shape}, keys {k_NHBTK.shape}; both must be "
            "(layers, heads, windows, T, K), none of them 0: repeat keys that several heads share"
        )
    layers, heads, windows, context, _ = q_NHBTK.shape
    if isinstance(mask, str):
        every = np.ones((context, context), bool)
        mask = {"causal": np.tril(every), "bidirectional": every}.get(mask, mask)
    visible = np.asarray(mask)
    shapes = (context, context), (layers, context, context)
    if visible.dtype != bool or visible.shape not in shapes:
        raise ValueError(
            f"mask is {mask if isinstance(mask, str) else (visible.shape, visible.dtype)}; "
            f"pass causal, bidirectional, or booleans {shapes[0]} or {shapes[1]}"
        )
    if not visible.any(axis=(-2, -1)).all():
        raise ValueError("mask shows no key to any query; True is where a query sees a key")
    if bias is not None:
        bias = np.broadcast_to(as_float32(bias, "bias"), (layers, heads, context, context))
    q_NBTHK, k_NBTHK = (np.moveaxis(x_NHBTK, 1, 3) for x_NHBTK in (q_NHBTK, k_NHBTK))
    return Heads(q_NBTHK, k_NBTHK, np.arange(windows * context), visible, bias)


def check_names(names: Sequence[str] | None, layers: int) -> None:
    """Raise ValueError unless each layer has a different name."""
    if names is None:
        return
    if isinstance(names, str) or not len(names) == layers == len({*names}):
        raise ValueError(f"names are {names}; a list of {layers} different names is needed")
