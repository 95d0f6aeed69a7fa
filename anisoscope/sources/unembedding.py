"""Check the unembedding and the targets that a user passes for the logit lens."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from anisoscope.metrics import logit_lens
from anisoscope.metrics.convert import as_float32
from anisoscope.sources.array_checks import Vectors

FIELDS = ("kind", "scale", "shift", "epsilon")
UNEMBEDDING = "unembedding"


def read_lens(
    unembedding: Any, target_P: np.ndarray | None, vectors: Vectors
) -> tuple[logit_lens.Unembedding, np.ndarray] | None:
    """Read the pair (norm, W), and check the tokens to predict, below 0 for none."""
    if unembedding is None:
        if target_P is not None:
            raise ValueError("targets are read with an unembedding: pass unembedding=(norm, W) too")
        return None
    if not isinstance(unembedding, list | tuple) or len(unembedding) != 2:
        raise ValueError(
            f"{UNEMBEDDING} is a {type(unembedding).__name__}; pass the pair (norm, W)"
        )
    norm, unembedding = unembedding
    unembedding_VD, widths = as_float32(unembedding, f"{UNEMBEDDING}'s W"), {*vectors.widths}
    if unembedding_VD.ndim != 2 or widths != {unembedding_VD.shape[1]}:
        found = " and ".join(map(str, sorted(widths)))
        raise ValueError(
            f"{UNEMBEDDING}'s W has shape {unembedding_VD.shape}; pass (vocabulary, width), where layers "
            f"have width {found}"
        )
    fields = _read_norm({"kind": "none"} if norm is None else norm, unembedding_VD.shape[1])
    target_P = read_targets(target_P, vectors, len(unembedding_VD))
    return logit_lens.build_unembedding(unembedding_VD.T, **fields), target_P


def _read_norm(norm: Any, width: int) -> dict[str, Any]:
    """Check the dict of a norm: its kind, and numbers of the vectors' width."""
    if not isinstance(norm, Mapping):
        raise ValueError(
            f"{UNEMBEDDING}'s norm is {norm!r}; pass None or a dict such as {{'kind': 'rms'}}"
        )
    if unknown := [name for name in norm if name not in FIELDS]:
        raise ValueError(
            f"{UNEMBEDDING}'s norm has {unknown[0]!r}; choose from {', '.join(FIELDS)}"
        )
    if (kind := norm.get("kind")) not in logit_lens.NORM_KINDS:
        known = ", ".join(logit_lens.NORM_KINDS)
        raise ValueError(f"{UNEMBEDDING}'s norm is of kind {kind!r}; choose from {known}")
    fields = {name: x for name, x in norm.items() if x is not None and name != "kind"}
    fields = {name: as_float32(x, f"{UNEMBEDDING}'s {name}") for name, x in fields.items()}
    for name, x in fields.items():
        shape = () if name == "epsilon" else (width,)
        if x.shape not in ((), shape):
            raise ValueError(f"{UNEMBEDDING}'s {name} has shape {x.shape}; pass {shape}")
    return {name: x if x.ndim else x.item() for name, x in fields.items()} | {"kind": kind}


def read_targets(target_P: Any, vectors: Vectors, tokens: int) -> np.ndarray:
    """Check the token to predict at each point: (points,), or (texts, tokens) of texts."""
    points = vectors.shape[0]
    if target_P is None:
        target_P = np.full(points, -1)
    elif vectors.texts is None and vectors.row_P is not None:
        target_P = target_P[vectors.row_P]
    elif vectors.texts is not None and target_P.shape == vectors.texts:
        target_P = target_P.reshape(-1)[vectors.row_P]
    if target_P.shape != (points,) or target_P.dtype.kind not in "iu":
        raise ValueError(
            f"targets have shape {target_P.shape}, dtype {target_P.dtype}; "
            f"a whole number for each of {points} points is needed"
        )
    if target_P.max() >= tokens:
        raise ValueError(f"targets reach {target_P.max()}; W has {tokens} tokens, numbered from 0")
    return np.maximum(target_P.astype(np.int64), -1).astype(np.int32)
