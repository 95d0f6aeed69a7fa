"""Read padding from the arguments of a call, whatever they are called.

Padding is a run at the ends of rows: shorter rows end with it, or begin with it. Letters: B rows of
a batch, T tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from anisoscope.sources.recording.recorded_passes import as_booleans, check_mask

# names of masks of tokens whose two values may mean either
UNCLEAR = ("mask", "attn_mask", "input_mask", "seq_mask", "src_mask", "token_mask", "valid_mask")
MASK_ADVICE = "pass attention_mask, 1 at tokens and 0 at padding, or the arrays to Recorder.add"


def as_padding(padding: torch.Tensor, lead: tuple[int, ...], name: str) -> np.ndarray:
    """Convert a mask that is True, 1 or -inf at padding to booleans of shape `lead`."""
    if padding.dtype.is_floating_point:  # added to the scores
        padding = torch.where(torch.isneginf(padding), torch.ones_like(padding), padding)
    padding = padding.detach().reshape(lead[0], -1)
    check_mask(name, lead, padding)
    return as_booleans(padding)


def named_mask(
    arguments: Mapping[str, Any], first: torch.Tensor | None, lead: tuple[int, ...]
) -> np.ndarray | None:
    """Return a mask of (batch, tokens), True at tokens, or None.

    Names tell lengths and masks of padding. What another mask marks is padding if the vectors or
    numbers there, in the `first` tensor, are all the same. ValueError where that does not tell.
    """
    for name, x in arguments.items():
        if not isinstance(x, torch.Tensor) or x.is_nested or name == "attention_mask":
            continue
        if "len" in name and x.ndim == 1 and len(x) == lead[0] and holds_numbers(x):
            return _lengths_mask(name, x, lead)
        if tuple(x.shape) != lead or not ("mask" in name or "pad" in name):
            continue
        if "pad" in name and "non" not in name and "not" not in name:
            return ~as_padding(x, lead, name)
        if not bool(((x == 0) | (x == 1)).all()):
            continue
        flag_BT = as_booleans(x)
        if len({*lead}) == 1:
            check_no_order(name, flag_BT)
        if flag_BT.all() or not flag_BT.any():
            continue
        found = [keep for keep in (flag_BT, ~flag_BT) if _marks_padding(~keep, first)]
        if len(found) == 1:
            return found[0]
        if name in UNCLEAR:
            raise ValueError(f"which value of {name} is padding is unknown; {MASK_ADVICE}")
    return None


def embedded_mask(
    embedded: Sequence[tuple[torch.Tensor, int]], lead: tuple[int, ...]
) -> np.ndarray | None:
    """Return the mask, True at tokens, of the ids that embeddings with a padding_idx looked up."""
    masks = []
    for ids, padding_idx in embedded:
        ids = ids.T if ids.ndim == 2 and tuple(ids.shape) != lead else ids
        if tuple(ids.shape) == lead:
            masks.append(~_end_runs((ids == padding_idx).cpu().numpy()))
    if any(not np.array_equal(mask, masks[0]) for mask in masks):
        raise ValueError(
            f"embeddings look up several inputs, each with other padding; {MASK_ADVICE}"
        )
    return masks[0] if masks else None


def check_no_order(name: str, mask: np.ndarray) -> None:
    """Raise ValueError where a mask may be one of queries and keys."""
    if mask.shape[0] == mask.shape[1] and not mask.all() and np.array_equal(mask, np.tril(mask)):
        what = f"{name} is square and triangular, so it may be causal"
        raise ValueError(f"{what}; pass another number of sequences than of tokens")


def holds_numbers(x: torch.Tensor) -> bool:
    """Whether a tensor holds integers, as token ids."""
    return not (x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool)


def _lengths_mask(name: str, lengths: torch.Tensor, lead: tuple[int, ...]) -> np.ndarray:
    length_B = lengths.detach().cpu().numpy()
    if length_B.min() < 0 or length_B.max() > lead[1]:
        what = f"{name} reaches {length_B.max()}, of {lead[1]} vectors in a row"
        raise ValueError(f"{what}; name a module that keeps the number of tokens")
    return np.arange(lead[1]) < length_B[:, None]


def _end_runs(flag_BT: np.ndarray) -> np.ndarray:
    """Return the runs of True at the end of rows, and at their begin.

    Where these are equally long in all rows, they are a token that begins each of them.
    """
    leading_BT = np.logical_and.accumulate(flag_BT, axis=1)
    trailing_BT = np.logical_and.accumulate(flag_BT[:, ::-1], axis=1)[:, ::-1]
    return trailing_BT | (leading_BT & (len({*leading_BT.sum(axis=1)}) > 1))


def _marks_padding(flag_BT: np.ndarray, first: torch.Tensor | None) -> bool:
    """Whether these places are at the ends of rows, and hold the same in the first tensor."""
    if first is None or tuple(first.shape[:2]) != flag_BT.shape:
        return False
    marked = first.detach()[torch.as_tensor(flag_BT, device=first.device)]
    return np.array_equal(_end_runs(flag_BT), flag_BT) and bool((marked == marked[0]).all())
