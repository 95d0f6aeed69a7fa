"""How a model makes its output, as somebody gives it beside arrays: ValueError, one line, where it
cannot be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from anisoscope.metrics.convert import as_float32
from anisoscope.metrics.logit_lens import KINDS, Readout, made
from anisoscope.sources.array_checks import OF_VECTORS, chosen

FAMILY = "readout"
WORDS = ("kind", "scale", "shift", "epsilon")


class Read(NamedTuple):
    readout: Readout
    target_P: np.ndarray


def with_readout(families: str | Sequence[str], readout: Any, single: bool) -> tuple[str, ...]:
    """The families that are asked for, and that of a readout where one is given."""
    named = (families,) if isinstance(families, str) else tuple(families)
    if readout is None:
        if FAMILY in named:
            raise ValueError(
                f"families: {FAMILY!r} needs readout=(norm, W), how the model makes logits of its last layer"
            )
        return chosen(families, OF_VECTORS, single)
    wanted = named if FAMILY in named or named == ("all",) else (*named, FAMILY)
    return chosen(wanted, (*OF_VECTORS, FAMILY), single)


def read_of(readout: Any, targets: Any, points: int, width: int) -> Read | None:
    """Of so many points of this width; None where no readout is given."""
    if readout is None:
        if targets is not None:
            raise ValueError("targets are read by the family readout: pass readout=(norm, W) too")
        return None
    if not isinstance(readout, tuple | list) or len(readout) != 2:
        raise ValueError(f"readout is of type {type(readout).__name__}; a pair (norm, W) is needed")
    norm, unembedding = readout
    unembedding_VD = as_float32(unembedding, "readout's W")
    if unembedding_VD.ndim != 2 or unembedding_VD.shape[1] != width:
        raise ValueError(
            f"readout's W has shape {unembedding_VD.shape}; (vocabulary, {width}) is needed"
        )
    return Read(
        made(unembedding_VD.T, **_norm(norm, width)), _targets(targets, points, len(unembedding_VD))
    )


def _norm(norm: Any, width: int) -> dict[str, Any]:
    if norm is None:
        return {}
    if (
        not isinstance(norm, Mapping)
        or not set(norm) <= set(WORDS)
        or norm.get("kind") not in KINDS
    ):
        raise ValueError(
            f"readout's norm is {norm if isinstance(norm, Mapping) else type(norm).__name__}; pass None, or a dict of "
            f"{', '.join(WORDS)}, whose kind is one of {', '.join(KINDS)}"
        )
    fields = dict(norm)
    for name in ("scale", "shift"):
        if fields.get(name) is not None:
            fields[name] = as_float32(fields[name], f"readout's {name}")
            if fields[name].shape not in ((), (width,)):
                raise ValueError(
                    f"readout's {name} has shape {fields[name].shape}; ({width},) is needed"
                )
    return {name: value for name, value in fields.items() if value is not None}


def _targets(targets: Any, points: int, vocabulary: int) -> np.ndarray:
    if targets is None:
        return np.full(points, -1, np.int32)
    target_P = np.asarray(targets)
    if target_P.shape != (points,) or target_P.dtype.kind not in "iu":
        raise ValueError(
            f"targets have shape {target_P.shape}, dtype {target_P.dtype}; a whole number for each of {points} points "
            "is needed"
        )
    if target_P.max() >= vocabulary:
        raise ValueError(
            f"targets reach {target_P.max()}; readout's W has {vocabulary} tokens, numbered from 0"
        )
    return np.maximum(target_P.astype(np.int64), -1).astype(np.int32)
