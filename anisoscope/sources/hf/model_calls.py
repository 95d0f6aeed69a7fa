"""Find the sequences and the padding behind the vectors of a hook point, from calls in a pass.

The innermost call around a hook point that takes a model's inputs decides. In an encoder–decoder
that is the call of the encoder or the decoder, in a model of pictures and text the call of a tower.
"""

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from anisoscope.sources.recording.recorded_passes import as_booleans, check_mask
from anisoscope.utils.errors import UserError

TOKENS = {"input_ids": 2, "inputs_embeds": 3}  # arguments (batch, tokens, …), and their dimensions
# arguments (batch, …), with an unknown number of tokens
OTHERS = ("pixel_values", "input_values", "input_features")
CACHES = ("past_key_values", "cache_params", "mems", "state")
PACKED = ("cu_seq_lens_q", "seq_idx")  # arguments of rows that pack several documents
SEQUENTIAL = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.RNNBase)
LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
SEQUENTIAL += LAYERS
SOURCES = {
    "src": "src_key_padding_mask",
    "tgt": "tgt_key_padding_mask",
}  # padding masks of PyTorch's own classes


class Sequences(NamedTuple):
    """The mask and the positions of the (batch, tokens) at a hook point."""

    mask: np.ndarray | None = None  # False at padding
    position_ids: np.ndarray | None = None


class Call:
    """A call of a module, with its arguments by name."""

    def __init__(self, module: nn.Module, parameters: list[str], args: tuple, kwargs: dict):
        self.module, self.parameters = module, parameters
        self.arguments = dict(zip(parameters, args, strict=False)) | kwargs
        self.source = module  # what hook points share that read the same sequences
        self.continues = any(_is_filled(self.arguments.get(name)) for name in CACHES)
        sequence_inputs = SOURCES if isinstance(module, SEQUENTIAL) else ()
        self.inputs = {
            name: self.arguments[name]
            for name in (*TOKENS, *OTHERS, *sequence_inputs)
            if isinstance(self.arguments.get(name), torch.Tensor)
        }

    def sequences(self, name: str, lead: tuple[int, ...], mask: np.ndarray | None) -> Sequences:
        """Return mask and positions of the vectors (batch, tokens) or (batch,) of a hook point."""
        if self.continues:
            raise ValueError(
                "the pass continues a cache, as generate does; call the model on whole sequences"
            )
        if "decoder_input_ids" in self.parameters:
            raise ValueError(
                f"hook point {name} lies outside encoder and decoder; name a module inside them"
            )
        position_ids = self.arguments.get("position_ids")
        if position_ids is None and any(self.arguments.get(key) is not None for key in PACKED):
            raise ValueError(
                "its rows hold several documents; pass position_ids, which restart in each"
            )
        shape = self._shape()
        if shape and (lead[0] != shape[0] or (len(lead) == len(shape) == 2 and lead != shape)):
            raise ValueError(
                f"hook point {name} returns {lead} vectors for inputs {shape}, so padding is unknown; "
                "name a module that keeps the shape"
            )
        if len(lead) == 1:
            return Sequences()
        passed = self._mask(lead[0])
        if passed is not None:
            check_mask(name, lead, passed)
            mask = as_booleans(passed) if mask is None else mask
        if not isinstance(position_ids, torch.Tensor) or position_ids.ndim != 2:
            return Sequences(mask)
        return Sequences(mask, np.broadcast_to(position_ids.detach().cpu().numpy(), lead))

    def _shape(self) -> tuple[int, ...] | None:
        """Return (batch, tokens) of the inputs, or (batch,); None for a nested tensor."""
        for name, x in self.inputs.items():
            if x.is_nested:
                return None
            if name in SOURCES and x.ndim < 3:
                return 1, len(x)
            if name in SOURCES:
                return tuple(x.shape[:2]) if _batch_first(self.module) else (x.shape[1], x.shape[0])
            if name in OTHERS or any(other in self.inputs for other in OTHERS):
                return tuple(x.shape[:1])
            return tuple(x.shape[:2])
        return None

    def _mask(self, batch: int) -> Any:
        """Return the attention mask that was passed, 1 at tokens and 0 at padding, or None."""
        for name in SOURCES.keys() & self.inputs.keys():
            padding = self.arguments.get(SOURCES[name])
            if padding is None:
                return None
            if padding.dtype.is_floating_point:  # added to the scores
                padding = torch.where(torch.isneginf(padding), torch.ones_like(padding), padding)
            return (1 - padding.detach().float()).reshape(batch, -1)
        mask = self.arguments.get("attention_mask")
        if mask is not None and not isinstance(mask, torch.Tensor):
            raise ValueError(
                f"attention_mask is a {type(mask).__name__}; pass a tensor (batch, tokens)"
            )
        return mask


def _is_filled(cache: Any) -> bool:
    """Return whether a cache holds tokens of earlier passes; True for an unknown kind."""
    if cache is None:
        return False
    try:
        return int(cache.get_seq_length()) > 0
    except Exception:
        return not (isinstance(cache, tuple | list) and not cache)


def tokens_first(model: nn.Module, name: str, module: nn.Module) -> bool:
    """Return whether a hook point returns (tokens, batch, width), the default of PyTorch's classes.

    UserError where the model has such a class, and the hook point is outside it.
    """
    for part in (module, *enclosing_modules(model, module)):
        if isinstance(part, SEQUENTIAL):
            return not _batch_first(part)
    for inner, part in model.named_modules():
        if isinstance(part, SEQUENTIAL) and not _batch_first(part):
            raise UserError(
                f"hook point {name}: {inner or 'the model'} has batch_first=False, so tokens may come "
                "before sequences; pass the arrays to Recorder.add"
            )
    return False


def _batch_first(module: nn.Module) -> bool:
    return all(getattr(part, "batch_first", True) for part in module.modules())


class LayerChains:
    """Follow a user's own loop over layers: a layer that reads another's output continues it.

    Layers of the same chain read the same sequences, though each is called by itself.
    """

    def __init__(self) -> None:
        self.first: dict[nn.Module, nn.Module] = {}  # of the chain of a layer
        self.last: tuple[Any, nn.Module] | None = None  # a weak reference to an output, its first

    def enter(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        x = args[0] if args else next(iter(kwargs.values()), None)
        continues = self.last is not None and x is not None and self.last[0]() is x
        self.first[module] = self.last[1] if continues else module

    def leave(self, module: nn.Module, args: tuple, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self.last = weakref.ref(output), self.first.get(module, module)


def enclosing_modules(model: nn.Module, module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that hold this module, innermost first; for a shared module, all."""
    parts = dict(model.named_modules(remove_duplicate=False))
    for name in [name for name, part in parts.items() if part is module and name]:
        while name:
            name = name.rpartition(".")[0]
            yield parts[name]


def dense(x: torch.Tensor) -> tuple[torch.Tensor, np.ndarray | None]:
    """Return (batch, tokens, width) of a nested tensor, and its mask."""
    if not x.is_nested:
        return x, None
    lengths = np.array([len(part) for part in x.unbind()])
    x = torch.nested.to_padded_tensor(x, 0.0)
    return x, np.arange(x.shape[1]) < lengths[:, None]
