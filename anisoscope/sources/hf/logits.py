"""Find how a decoder computes logits, as arrays, for the logit lens (the family logit_lens).

Letters: Z batches of windows.
"""

import copy
from typing import Any

import numpy as np
import torch

from anisoscope.metrics.logit_lens import Unembedding, build_unembedding, logits
from anisoscope.sources.array_checks import LENS_FAMILY
from anisoscope.sources.hf.adapters import UNKNOWN, Adapter
from anisoscope.sources.hf.extract import residual_stream, to_array
from anisoscope.sources.hf.guards import CLOSE, NEXT_TOKEN, head_task, sees_later
from anisoscope.sources.hf.load_model import PretrainedModel, find_module
from anisoscope.utils.errors import UserError

# root mean squares: far above a norm's epsilon, and near the root of epsilon
LARGE_LOGIT, SMALL_MOVE = 1e4, 1e-3


def missing_head(adapter: Adapter, name: str) -> str | None:
    """Return why the logit lens cannot be applied to a class; None: it can."""
    if head_task(name) != NEXT_TOKEN:
        return f"{name} has no head of norm and matrix that predicts the next token"
    return f"the final norm of {name} is not known" if adapter == UNKNOWN else None


def make_unembedding(loaded: PretrainedModel) -> Unembedding:
    """Combine the final norm, the projection after it and the head, in float32."""
    head = loaded.model.get_output_embeddings()
    after = find_module(loaded.base, loaded.adapter.final_projection)
    if head.weight.device.type == "meta":
        what = f"{LENS_FAMILY} needs the unembedding in memory"
        raise UserError(f"{what}; leave pretrained.device_map out")
    unembedding_VD = to_array(head.weight)
    bias_V = None if head.bias is None else to_array(head.bias)
    if after is not None:
        if after.bias is not None:
            bias_V = unembedding_VD @ to_array(after.bias) + (0.0 if bias_V is None else bias_V)
        unembedding_VD = unembedding_VD @ to_array(after.weight)
    norm = _probe_norm(find_module(loaded.base, loaded.adapter.final_norm), unembedding_VD.shape[1])
    settings = loaded.model.config
    divisor = getattr(settings, "logits_scaling", None) or 1.0
    factor = (getattr(settings, "logit_scale", None) or 1.0) / divisor
    bias_V = None if bias_V is None else bias_V * factor
    cap = getattr(settings, "final_logit_softcapping", None)
    return build_unembedding(unembedding_VD.T * np.float32(factor), **norm, bias=bias_V, cap=cap)


def check_logits(loaded: PretrainedModel, unembedding: Unembedding, tokens_T: np.ndarray) -> str:
    """Check that the last captured stream yields the model's own logits; return how closely."""
    name = loaded.class_name
    if sees_later(loaded, tokens_T):
        what = f"{name} sees the tokens that it is to predict"
        raise UserError(f"{what}; leave the family {LENS_FAMILY} out")
    streams, output = residual_stream(loaded, tokens_T[None], loaded.model)
    expected_TV = to_array(output.logits[0])
    read_TV = np.asarray(logits(to_array(streams[-1][0]), unembedding))
    distance = np.abs(read_TV - expected_TV).max() / np.abs(expected_TV).max()
    if not distance <= CLOSE[loaded.attributes["computed_in"]]:
        what = f"{name}: final norm and unembedding differ from its logits by {distance:.2g}"
        raise UserError(f"{what} of the largest; leave {LENS_FAMILY} out")
    return f"of the last layer the model's own logits to {distance:.0e}"


def next_tokens(tokens_ZWT: np.ndarray, fixed_T: np.ndarray) -> np.ndarray:
    """Return the next token; -1 at a window's end and before a special token of every window."""
    next_ZWT = np.full_like(tokens_ZWT, -1)
    next_ZWT[..., :-1] = np.where(fixed_T[1:], -1, tokens_ZWT[..., 1:])
    return next_ZWT


def _probe_norm(module: Any, width: int) -> dict[str, Any]:
    """Measure what a norm of any class does, from its outputs for vectors of coordinates ± a size."""
    if module is None:
        return {"kind": "none"}
    module, sign_D = copy.deepcopy(module).float().cpu(), torch.ones(width)
    sign_D[1::2] = -1.0
    inputs = (
        LARGE_LOGIT * sign_D,
        -LARGE_LOGIT * sign_D,
        SMALL_MOVE * sign_D,
        LARGE_LOGIT * (sign_D + 1),
    )
    with torch.no_grad():
        plus_D, minus_D, small_D, moved_D = module(torch.stack(inputs)[None])[0]
    shift_D, scale_D = (plus_D + minus_D) / 2, (plus_D - minus_D) / 2 * sign_D
    share = float(
        (small_D - shift_D).norm() / scale_D.norm()
    )  # SMALL_MOVE / sqrt(SMALL_MOVE^2 + epsilon)
    centers = bool((moved_D - plus_D).norm() < SMALL_MOVE * plus_D.norm())
    return {
        "kind": "layer" if centers else "rms",
        "scale": scale_D.numpy(),
        "shift": shift_D.numpy(),
        "epsilon": SMALL_MOVE**2 * max(share**-2 - 1.0, 0.0),
    }
