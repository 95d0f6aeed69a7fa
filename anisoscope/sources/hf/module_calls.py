"""Read from the calls around a PyTorch module which sequences it reads, and what is padding.

Calls are open from the model's own, outermost, to that of the module. In an encoder–decoder the
sequences are those of the encoder's or the decoder's call, and in a model of pictures and text those
of a tower's. What the calls say is compared with the shape of the vectors: a difference is an error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from anisoscope.sources.hf import padding_masks
from anisoscope.sources.recording.recorded_passes import Sequences, as_booleans, check_mask

TOKEN_ARGUMENTS = ("input_ids", "inputs_embeds")  # arguments (batch, tokens, …)
# arguments (batch, …), with an unknown number of tokens
MEDIA_ARGUMENTS = ("pixel_values", "input_values", "input_features")
CACHES = ("past_key_values", "cache_params", "mems", "state")
PACKED = ("cu_seq_lens_q", "seq_idx")  # arguments of rows that pack several documents
TORCH_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
SEQUENTIAL = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.RNNBase,
    *TORCH_LAYERS,
)
# padding masks of PyTorch's own classes
PADDING_ARGUMENTS = {"src": "src_key_padding_mask", "tgt": "tgt_key_padding_mask"}


def batch_first(module: nn.Module) -> bool:
    return all(getattr(part, "batch_first", True) for part in module.modules())


class ModuleCall:
    """A call of a module, with its arguments by name; those of a mapping are its items."""

    def __init__(
        self, module: nn.Module, source: nn.Module, parameters: list[str], args: tuple, kwargs: dict
    ):
        self.module, self.parameters = module, parameters
        self.source = source  # shared by hook points that read the same sequences
        names = [*parameters, *(f"*{number}" for number in range(len(parameters), len(args)))]
        self.arguments: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
        for x in [x for x in self.arguments.values() if isinstance(x, Mapping)]:
            self.arguments = self.arguments | dict(x)
        tensors = {k: x for k, x in self.arguments.items() if isinstance(x, torch.Tensor)}
        self.first = next((x for x in tensors.values() if x.ndim), None)
        self.embedded: list[tuple[torch.Tensor, int]] = []  # ids looked up in it, padding_idx
        sequence_inputs = PADDING_ARGUMENTS if isinstance(module, SEQUENTIAL) else ()
        names = (*TOKEN_ARGUMENTS, *MEDIA_ARGUMENTS, *sequence_inputs)
        self.inputs = {name: tensors[name] for name in names if name in tensors}
        self.found: dict[tuple[int, ...], Sequences] = {}  # by shape of the vectors
        # whether its arguments belong to several sequences
        self.two_sided = "decoder_input_ids" in parameters
        texts = len(self.inputs.keys() & {*TOKEN_ARGUMENTS})
        self.splits = self.two_sided or 0 < texts < len(self.inputs)
        # now: the pass itself fills the cache
        self.continues = texts > 0 and any(_is_filled(self.arguments.get(key)) for key in CACHES)

    def shape(self) -> tuple[int, ...] | None:
        """Return (batch, tokens) of the inputs, or (batch,); None where they do not show it."""
        for name, x in self.inputs.items():
            if x.is_nested:
                return None
            if name in PADDING_ARGUMENTS and x.ndim < 3:
                return 1, len(x)
            if name in PADDING_ARGUMENTS:
                return tuple(x.shape[:2]) if batch_first(self.module) else (x.shape[1], x.shape[0])
            if name in MEDIA_ARGUMENTS or any(other in self.inputs for other in MEDIA_ARGUMENTS):
                return tuple(x.shape[:1])
            lead = x.shape[: x.ndim - (name == "inputs_embeds")]
            return int(np.prod(lead[:-1])), lead[-1]  # as where choices are flattened
        if self.first is None or self.first.is_nested:
            return None
        ids = self.first.ndim == 2 and padding_masks.holds_numbers(self.first)
        return tuple(self.first.shape[: 2 if ids else 1])

    def check(self, name: str, lead: tuple[int, ...], tokens_first: bool) -> None:
        """Raise ValueError where vectors `lead` cannot be those of whole rows of the inputs."""
        if self.continues:
            what = "the pass continues a cache, as generate does"
            raise ValueError(f"{what}; call the model on whole sequences")
        if self.two_sided:
            what = f"hook point {name} lies outside encoder and decoder"
            raise ValueError(f"{what}; name a module inside them")
        packed = any(self.arguments.get(key) is not None for key in PACKED)
        if packed and self.arguments.get("position_ids") is None:
            advice = "pass position_ids, which restart in each"
            raise ValueError(f"its rows hold several documents; {advice}")
        shape = self.shape()
        if shape and not self.inputs and tokens_first:  # so may the first tensor be
            shape = lead if lead[0] in self.first.shape[:2] else shape
        if shape and (lead[0] != shape[0] or (len(lead) == len(shape) == 2 and lead != shape)):
            advice = "so padding is unknown; name a module that keeps the shape"
            raise ValueError(
                f"hook point {name} returns {lead} vectors for inputs {shape}, {advice}"
            )

    def mask(self, name: str, lead: tuple[int, ...], strict: bool) -> np.ndarray | None:
        """Return the mask of these vectors that was passed, True at tokens, or None.

        A mask of another shape, as layers get, is an error where the call is `strict`.
        """
        for source in PADDING_ARGUMENTS.keys() & self.inputs.keys():
            padding = self.arguments.get(PADDING_ARGUMENTS[source])
            return None if padding is None else ~padding_masks.as_padding(padding, lead, name)
        mask = self.arguments.get("attention_mask")
        if mask is not None and not isinstance(mask, torch.Tensor):
            what = f"attention_mask is a {type(mask).__name__}"
            raise ValueError(f"{what}; pass a tensor (batch, tokens)")
        if mask is None or not (strict or tuple(mask.shape) == lead):
            return padding_masks.named_mask(self.arguments, self.first, lead)
        if mask.ndim == 3 and mask.numel() == np.prod(lead):  # as where choices are flattened
            mask = mask.reshape(lead)
        check_mask(name, lead, mask)
        known = as_booleans(mask)
        if not self.inputs:
            padding_masks.check_no_order("attention_mask", known)
        return known

    def positions(self, lead: tuple[int, ...]) -> np.ndarray | None:
        """Return the positions that were passed: another sequence begins where they restart."""
        x = self.arguments.get("position_ids")
        if not isinstance(x, torch.Tensor) or not 2 <= x.ndim <= 3:
            return None
        x = x.detach().cpu().numpy().reshape(-1, x.shape[-1])
        return np.broadcast_to(x, lead) if x.shape in ((1, lead[1]), lead) else None

    def reads_of(self, other: ModuleCall) -> bool:
        """Whether an input is one of another call's, or made of it."""
        if "inputs_embeds" in self.inputs and "input_ids" in other.inputs:
            return True
        pairs = itertools.product(self.inputs.values(), other.inputs.values())
        return any(x is y or _begins_alike(x, y) for x, y in pairs)


def find_sequences(
    name: str,
    lead: tuple[int, ...],
    calls: Sequence[ModuleCall],
    mask: np.ndarray | None,
    tokens_first: bool,
) -> Sequences:
    """Find the sequences of a hook point; ValueError where its vectors do not fit them.

    `mask` is what the vectors themselves say. Otherwise the innermost call that takes a known input
    says what is padding, or one around it that takes the same input. Where no input is known, all
    calls are asked, and the first tensor of the model's own shows the shape.
    """
    known = [call for call in calls if call.inputs]
    known = [call for call in known if not call.splits] or known[-1:]
    cache = known[-1].found if known and mask is None else {}
    if lead in cache:  # the device need not be waited for again
        return cache[lead]
    chain = _linked(known, lead)
    sources, chain = chain or calls, chain or [*calls[:1]]
    for call in chain:
        call.check(name, lead, tokens_first)
    if len(lead) == 1 or not chain:
        return Sequences(lead, mask, source=chain[-1].source if chain else None)
    for call in sources:
        mask = call.mask(name, lead, call in chain) if mask is None else mask
    if mask is None:
        mask = padding_masks.embedded_mask(chain[-1].embedded, lead)
    if mask is not None and mask.all():
        mask = None
    ids = next((x for call in chain if (x := call.positions(lead)) is not None), None)
    cache[lead] = Sequences(lead, mask, ids, chain[-1].source)
    return cache[lead]


def _linked(known: list[ModuleCall], lead: tuple[int, ...]) -> list[ModuleCall]:
    """Return the innermost of these calls, then those around it of which it takes an input.

    One that takes fewer tokens, because the model pads inside, ends the chain: it does not fit.
    """
    chain = known[-1:]
    for call in reversed(known[:-1]):
        inner = chain[-1]
        if inner.inputs.keys() & PADDING_ARGUMENTS.keys() or not inner.reads_of(call):
            break
        own, outer = inner.shape(), call.shape()
        if own != outer:
            passed = inner.arguments.get("attention_mask")
            if isinstance(passed, torch.Tensor) and tuple(passed.shape) == lead:
                break  # padded, or with further tokens, and says so
            if own and outer and own < outer and "attention_mask" not in call.arguments:
                break  # cut
        chain.append(call)
    return chain


def _begins_alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether ids, flattened to rows, begin or end as others do, such as those of a padded copy."""
    if not (padding_masks.holds_numbers(x) and padding_masks.holds_numbers(y)) or x.is_nested:
        return False
    x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]).to(x.device)
    count = min(x.shape[1], y.shape[1])
    return len(x) == len(y) and (
        torch.equal(x[:, :count], y[:, :count]) or torch.equal(x[:, -count:], y[:, -count:])
    )


def _is_filled(cache: Any) -> bool:
    """Return whether a cache holds tokens of earlier passes; True for an unknown kind."""
    if cache is None or isinstance(cache, torch.Tensor):  # an argument of another meaning
        return False
    try:
        return int(cache.get_seq_length()) > 0
    except Exception:
        return not (isinstance(cache, tuple | list) and not cache)
