"""How a decoder makes its logits of the last block's output, in arrays: the family readout reads
every layer so.

Letters: Z batches.
"""

import copy
from typing import Any

import numpy as np
import torch

from anisoscope.metrics.logit_lens import Readout, logits, made
from anisoscope.sources.hf.adapters import UNKNOWN, Adapter
from anisoscope.sources.hf.load_model import PretrainedModel, find_module
from anisoscope.sources.hf.reading.extract import residual_stream
from anisoscope.sources.hf.reading.guards import CLOSE, NEXT_TOKEN, head_task, sees_later
from anisoscope.utils.errors import UserError

FAMILY = "readout"
# root mean squares beside which a norm's epsilon is nothing, and of about its root
LARGE, SMALL = 1e4, 1e-3


def missing_head(adapter: Adapter, name: str) -> str | None:
    """Why logits of a class of this name are not read off layers; None: they are."""
    if head_task(name) != NEXT_TOKEN:
        return f"{name} has no head of norm and matrix that predicts the next token"
    return f"the final norm of {name} is not known" if adapter == UNKNOWN else None


def make_readout(loaded: PretrainedModel) -> Readout:
    """The final norm, what follows it and the head, in float32."""
    head, after = (
        loaded.model.get_output_embeddings(),
        find_module(loaded.base, loaded.adapter.after),
    )
    if head.weight.device.type == "meta":
        raise UserError(
            f"{FAMILY} needs the unembedding in memory, not offloaded: leave pretrained.device_map out"
        )
    unembedding_VD, bias_V = _numbers(head.weight), _numbers(head.bias)
    if after is not None:
        if after.bias is not None:
            bias_V = unembedding_VD @ _numbers(after.bias) + (0.0 if bias_V is None else bias_V)
        unembedding_VD = unembedding_VD @ _numbers(after.weight)
    norm = _norm(find_module(loaded.base, loaded.adapter.final_norm), unembedding_VD.shape[1])
    settings = loaded.model.config
    times = (getattr(settings, "logit_scale", None) or 1.0) / (
        getattr(settings, "logits_scaling", None) or 1.0
    )
    bias_V = None if bias_V is None else bias_V * times
    cap = getattr(settings, "final_logit_softcapping", None)
    return made(unembedding_VD.T * np.float32(times), **norm, bias=bias_V, cap=cap)


def check_logits(loaded: PretrainedModel, readout: Readout, tokens_T: np.ndarray) -> str:
    """The last stream that was caught must be read as the model's own logits. In words; UserError
    where it is not.
    """
    if sees_later(loaded, tokens_T):
        name = type(loaded.model).__name__
        raise UserError(
            f"{name} sees the tokens that it is to predict: leave the family {FAMILY} out"
        )
    streams, output = residual_stream(loaded, tokens_T[None], loaded.model)
    own_TV = _numbers(output.logits[0])
    far = (
        np.abs(np.asarray(logits(_numbers(streams[-1][0]), readout)) - own_TV).max()
        / np.abs(own_TV).max()
    )
    if not far <= CLOSE[loaded.about["computed_in"]]:
        raise UserError(
            f"{type(loaded.model).__name__}: final norm and unembedding of the last block are not the model's logits "
            f"(they differ by {far:.2g} of the largest): leave the family {FAMILY} out"
        )
    return f"of the last layer the model's own logits to {far:.0e}"


def next_tokens(tokens_ZWT: np.ndarray, fixed_T: np.ndarray) -> np.ndarray:
    """The next token of the window; -1 where it ends, and where every window has a special
    token.
    """
    next_ZWT = np.full_like(tokens_ZWT, -1)
    next_ZWT[..., :-1] = np.where(fixed_T[1:], -1, tokens_ZWT[..., 1:])
    return next_ZWT


def _norm(module: Any, width: int) -> dict[str, Any]:
    """What the module does, whatever its class: read off what it gives of vectors whose coordinates
    are ± a size.
    """
    if module is None:
        return {"kind": "none"}
    module, sign_D = copy.deepcopy(module).float().cpu(), torch.ones(width)
    sign_D[1::2] = -1.0
    with torch.no_grad():
        plus_D, minus_D, small_D, moved_D = module(
            torch.stack([LARGE * sign_D, -LARGE * sign_D, SMALL * sign_D, LARGE * (sign_D + 1)])[
                None
            ]
        )[0]
    shift_D, scale_D = (plus_D + minus_D) / 2, (plus_D - minus_D) / 2 * sign_D
    share = float((small_D - shift_D).norm() / scale_D.norm())  # SMALL / sqrt(SMALL^2 + epsilon)
    centres = bool((moved_D - plus_D).norm() < SMALL * plus_D.norm())
    return {
        "kind": "layer" if centres else "rms",
        "scale": scale_D.numpy(),
        "shift": shift_D.numpy(),
        "epsilon": SMALL**2 * max(share**-2 - 1.0, 0.0),
    }


def _numbers(x: Any) -> Any:
    return None if x is None else x.detach().to("cpu", torch.float32).numpy()
