"""Check the arrays that a user passes, and bring them into one order and type.

Input that cannot be measured raises a ValueError of one line. Letters: L clusters.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import CLOUD_NULLS, MeasureConfig
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.convert import (
    ArrayLike,
    as_arrays,
    as_float32,
    as_vectors,
    check_precision,
    order_rows,
    read_values,
    real_numbers,
    stack_rows,
)
from anisoscope.metrics.registry import FAMILIES
from anisoscope.sources.axes import find_tokens, is_named, split_layers, take_tokens
from anisoscope.sources.evaluation_windows import POSITION_SETS, WITHOUT_MASSIVE
from anisoscope.sources.massive_tokens import find_massive
from anisoscope.utils.errors import did_you_mean
from anisoscope.utils.settings import LARGEST_SEED

VECTOR_INPUTS, HEAD_INPUTS = ("cloud", "layers"), ("heads",)  # kinds of input that a family reads
LENS_FAMILY = "logit_lens"  # the family that maps every layer to logits
FEWEST_POINTS = 8  # points
ROWS = 2**16  # vectors read at a time to find massive ones

VectorsLike = ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike]


class Vectors(NamedTuple):
    """Layers of vectors of the same P points, with the cluster and time of each point."""

    layers: list[Any]  # (P, D) each, not yet read; D may differ
    cluster_P: np.ndarray | None = None  # numbers from 0
    time_P: np.ndarray | None = None  # place in the cluster; None: unknown
    single: bool = False  # one matrix, no list of layers
    names: list[str] | None = None  # of the layers, where they were a dict
    texts: tuple[int, int] | None = None  # (texts, tokens), where the points are tokens of texts
    row_P: np.ndarray | slice | None = None  # number of each point's position, among all; None: all

    @property
    def shape(self) -> tuple[int, int]:
        return np.shape(self.layers[0])

    @property
    def widths(self) -> list[int]:
        return [np.shape(x)[1] for x in self.layers]

    @property
    def width(self) -> int | str:
        """The width of all layers, or the widths of the least and the largest."""
        least, most = min(self.widths), max(self.widths)
        return most if least == most else f"{least} to {most}"

    def without_first_token(self) -> "Vectors":
        """Leave out the first token of each text."""
        keep_P = np.flatnonzero(self.time_P > 0)
        if len(keep_P) < FEWEST_POINTS:
            raise ValueError(
                f"texts have {len(keep_P)} tokens without their first ones, and {FEWEST_POINTS} are "
                "needed; pass layers (points, width), and clusters"
            )
        return self.take(keep_P)

    def find_massive(self) -> np.ndarray:
        """Mark the vectors that are massive in each layer, (L, P)."""
        starts = range(0, self.shape[0], ROWS)
        return find_massive(
            (as_vectors(x[start : start + ROWS], f"vectors of layer {n}") for start in starts)
            for n, x in enumerate(self.layers)
        )

    def without_massive(self, massive_LP: np.ndarray) -> "Vectors":
        """Leave out the points that are massive in any layer."""
        keep_P = np.flatnonzero(~massive_LP.any(axis=0))
        if len(keep_P) < FEWEST_POINTS:
            raise ValueError(
                f"vectors have {len(keep_P)} points that are massive in no layer, and "
                f"{FEWEST_POINTS} are needed; leave without_massive out"
            )
        return self if len(keep_P) == massive_LP.shape[1] else self.take(keep_P)

    def take(self, keep_P: np.ndarray) -> "Vectors":
        """Keep these points alone."""
        cluster_P, time_P = (
            None if x is None else x[keep_P] for x in (self.cluster_P, self.time_P)
        )
        rows = np.arange(self.shape[0]) if not isinstance(self.row_P, np.ndarray) else self.row_P
        return self._replace(
            layers=[x[keep_P] for x in self.layers],
            cluster_P=None if cluster_P is None else np.unique(cluster_P, return_inverse=True)[1],
            time_P=time_P,
            row_P=rows[keep_P],
        )


def make_settings(
    families: str | Sequence[str],
    kinds: tuple[str, ...],
    nulls: str | Sequence[str],
    folds: int,
    seed: int,
) -> MeasureConfig:
    """Check families, null models, folds and seed."""
    families, nulls = ((names,) if isinstance(names, str) else names for names in (families, nulls))
    for what, names in (("families", families), ("nulls", nulls)):
        if not isinstance(names, Iterable):
            raise ValueError(f"{what} is {names!r}; pass a list of names, or () for none")
    families, nulls = choose_families(families, kinds), tuple(nulls)
    if unknown := [null for null in nulls if null not in CLOUD_NULLS]:
        known = f"{did_you_mean(unknown[0], CLOUD_NULLS)}choose from {', '.join(CLOUD_NULLS)}"
        raise ValueError(f"nulls: {unknown[0]!r} cannot be made of arrays; {known}")
    try:
        folds, seed = operator.index(folds), operator.index(seed)  # refuses 2.5 folds
    except TypeError as error:
        raise ValueError(f"folds is {folds!r} and seed {seed!r}; pass whole numbers") from error
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
        name for name, family in FAMILIES.items() if family.kind in kinds and not family.reads_types
    ]
    names = (families,) if isinstance(families, str) else tuple(families)
    names, choices = tuple(allowed) if names == ("all",) else names, ", ".join(allowed)
    if not names or len({*names}) < len(names):
        raise ValueError(f"families are {names}; name each once, from {choices}")
    if unknown := [name for name in names if name not in allowed]:
        owners = [own for own, family in FAMILIES.items() if unknown[0] in family.quantities]
        hint = did_you_mean(unknown[0], allowed)
        hint = f"it is a quantity of the family {owners[0]}; " if owners else hint
        if unknown == [LENS_FAMILY]:
            hint = "it needs unembedding=(norm, W) of anisoscope.measure; "
        what = f"families: {unknown[0]!r} cannot be measured of {source}"
        raise ValueError(f"{what}; {hint}choose from {choices}")
    return names


def read_vectors(
    x: Any,
    clusters: Any = None,
    token_positions: Any = None,
    axes: Sequence[str] | None = None,
    mask: Any = None,
) -> Vectors:
    """Find layers and points in arrays of any library, and number the cluster of each point."""
    x = stack_rows(x)
    clusters, token_positions = (
        align(labels, x, name)
        for labels, name in ((clusters, "clusters"), (token_positions, "token_positions"))
    )
    layers, texts, single, names = split_layers(x, axes, mask)
    shapes = [tuple(np.shape(layer)) for layer in layers]
    if len({shape[:-1] for shape in shapes}) > 1:
        raise ValueError(
            f"layers have the shapes {shapes}; pass the same points in each, or texts of different "
            "lengths one after another, with clusters"
        )
    if 0 in (shape := shapes[0]) or not all(shape[-1] for shape in shapes):
        raise ValueError(f"vectors have shape {shape}, which holds none; pass (points, width)")
    if texts:
        if clusters is not None or token_positions is not None:
            raise ValueError(
                "clusters and token_positions are those of texts (texts, tokens, width): leave them "
                "out, or pass layers (points, width)"
            )
        tokens = find_tokens(shape, mask)
        check_points(len(tokens.text_P))
        cluster_P = np.unique(tokens.text_P, return_inverse=True)[1]
        layers = [take_tokens(layer, tokens.row_P) for layer in layers]
        place_P = tokens.place_P.astype(np.int32)
        return Vectors(layers, cluster_P, place_P, single, names, shape[:2], tokens.row_P)
    if mask is not None:
        raise ValueError(f"mask is for (texts, tokens, width), and vectors have shape {shape}")
    points = shape[0]
    check_points(points)
    if token_positions is not None and (clusters is None or token_positions.shape != (points,)):
        raise ValueError(
            f"token_positions have shape {token_positions.shape}, vectors have {points} points; "
            "pass one position per point, and clusters"
        )
    cluster_P = None if clusters is None else number_clusters(points, clusters)
    if (time_P := token_positions) is not None:
        numbers = time_P.dtype.kind in "iuf"
        if not numbers or not ((time_P >= 0) & (time_P < 2**31) & (time_P % 1 == 0)).all():
            raise ValueError(
                "token_positions must be whole numbers below 2^31, 0 at the first of each cluster"
            )
        time_P = time_P.astype(np.int32)
    return Vectors(layers, cluster_P, time_P, single, names)


def check_points(points: int) -> None:
    if points < FEWEST_POINTS:
        raise ValueError(f"vectors have {points} points; at least {FEWEST_POINTS} are needed")


def align(labels: Any, x: Any, name: str) -> np.ndarray | None:
    """Bring labels into the order of the points, by index where both have one."""
    if labels is None:
        return None
    if is_named(x):
        x = [x[name] for name in x.keys()]  # noqa: SIM118
    labels = order_rows(labels, x[0] if isinstance(x, list | tuple) and len(x) else x, name)
    labels = read_values(labels, name)
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
    if not label_P.dtype.isnative:  # as files of other machines hold them
        label_P = label_P.astype(label_P.dtype.newbyteorder("="))
    if label_P.dtype.kind == "f":
        largest = np.nanmax(np.abs(label_P), initial=0)
        if largest >= 2.0 ** (np.finfo(label_P.dtype).nmant + 1):
            raise ValueError(
                f"clusters are of type {label_P.dtype} and reach {largest:.0e}; "
                "floats of that size merge neighboring integers; pass integers"
            )
    try:
        number_P = pd.factorize(label_P, sort=True)[0]
    except TypeError as error:  # neither hashed nor sorted
        kinds = ", ".join(sorted({type(label).__name__ for label in label_P}))
        raise ValueError(f"clusters are of type {kinds}; pass numbers or strings") from error
    if missing := int((number_P < 0).sum()):
        raise ValueError(
            f"clusters: {missing} of {points} labels are missing; leave their points out"
        )
    return number_P


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
    try:
        visible = np.asarray(read_values(mask, "mask"))
    except ValueError as error:
        raise ValueError("mask has rows of different lengths; pass one array") from error
    shapes = (context, context), (layers, context, context)
    if visible.dtype != bool or visible.shape not in shapes:
        raise ValueError(
            f"mask is {mask if isinstance(mask, str) else (visible.shape, visible.dtype)}; "
            f"pass causal, bidirectional, or booleans {shapes[0]} or {shapes[1]}"
        )
    if not visible.any(axis=(-2, -1)).all():
        raise ValueError("mask shows no key to any query; True is where a query sees a key")
    if bias is not None:
        bias, shape = as_float32(bias, "bias"), (layers, heads, context, context)
        try:
            bias = np.broadcast_to(bias, shape)
        except ValueError as error:
            what = f"bias has shape {bias.shape}"
            raise ValueError(f"{what}; pass {shape}, or what broadcasts to it") from error
    q_NBTHK, k_NBTHK = (np.moveaxis(x_NHBTK, 1, 3) for x_NHBTK in (q_NHBTK, k_NHBTK))
    return Heads(q_NBTHK, k_NBTHK, np.arange(windows * context), visible, bias)


def check_texts(vectors: Vectors, folds: int) -> None:
    """Raise ValueError where there is a single text, and intervals resample texts."""
    if vectors.texts is not None and folds > 1 and vectors.cluster_P.max() == 0:
        raise ValueError("there is one text; pass more, or folds=1 for values without intervals")


def position_sets(vectors: Vectors, massive_LP: np.ndarray | None = None) -> dict[str, Vectors]:
    """Return the sets of positions that are measured: of texts, also without their first tokens.

    With marks of massive vectors, also without the points that are massive in any layer.
    """
    sets = {POSITION_SETS[0]: vectors}
    if vectors.texts is not None:
        sets[POSITION_SETS[1]] = vectors.without_first_token()
    if massive_LP is not None:
        sets[WITHOUT_MASSIVE] = vectors.without_massive(massive_LP)
    return sets


def choose_names(names: Sequence[str] | None, vectors: Vectors) -> Sequence[str] | None:
    """Return the names of layers, or the keys of their dict; None: they are numbered."""
    if names is not None and vectors.names is not None:
        raise ValueError("layer_names are the keys of the dict of layers; leave layer_names out")
    check_names(names, len(vectors.layers))
    return vectors.names if names is None else names


def check_names(names: Sequence[str] | None, layers: int) -> None:
    """Raise ValueError unless each layer has a different name."""
    if names is None:
        return
    listed = isinstance(names, Sequence | np.ndarray) and not isinstance(names, str)
    if not listed or not len(names) == layers == len({*map(str, names)}) or np.ndim(names) != 1:
        raise ValueError(f"names are {names!r}; a list of {layers} different names is needed")
