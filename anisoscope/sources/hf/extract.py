"""Read windows with a model into arrays: the residual stream of every layer, queries and keys.

`hidden_states` is not used, since its last entry has passed the final norm in some models only.
Shape letters are those of docs/reference/letters.md, and W windows, Z inputs.
"""

import itertools
from typing import Any

import numpy as np
import torch

from anisoscope.sources.activations import BatchActivations
from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN
from anisoscope.sources.hf.layer_capture import Listener, first_output
from anisoscope.sources.hf.load_model import PretrainedModel, tokens_per_position
from anisoscope.utils.errors import SettingError, UserError

RESIDUALS = "the residual stream"


def forward(
    loaded: PretrainedModel,
    tokens_BT: np.ndarray,
    module: Any = None,
    differentiated: bool = False,
    mask_BT: np.ndarray | None = None,
    **more: Any,
) -> Any:
    """Run one pass of the model's base, or of another `module`, without padding.

    `mask_BT` is False at tokens that pad. For models without text, the windows are what their
    processor makes of pictures or sound. The graph for gradients is kept where the pass is
    `differentiated`.
    """
    base = loaded.base
    name, module = base.main_input_name, base if module is None else module
    inputs = torch.as_tensor(np.ascontiguousarray(tokens_BT), device=base.device)
    if loaded.reads_text:
        inputs = inputs.long()
        mask_BT = (
            torch.ones_like(inputs) if mask_BT is None else torch.as_tensor(mask_BT).to(inputs)
        )
        more = {"attention_mask": mask_BT} | more
    else:
        inputs, module = inputs.to(base.dtype), loaded.stack
    try:
        with torch.set_grad_enabled(differentiated):
            return module(**{name: inputs} | more)
    except (AttributeError, TypeError, ValueError) as error:
        if loaded.adapter != UNKNOWN:
            raise
        reason = str(error).splitlines()[0].rstrip(".")
        what = f"{loaded.class_name} cannot read {name} alone ({reason})"
        raise UserError(f"{what}; {ENTRY}") from error


def choose_layers(loaded: PretrainedModel, layers: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the numbers of these layers, ascending; None: all, where none is named.

    Negative numbers count from the end. UserError where a layer is not there, or named twice.
    """
    blocks, chosen = loaded.blocks, set()
    for layer in layers:
        if not -blocks - 1 <= layer <= blocks:
            what = f"layers: {loaded.class_name} has no layer {layer}"
            raise UserError(f"{what}; it has 0, the embedding, to {blocks}, or -1 to {-blocks - 1}")
        number = layer % (blocks + 1)
        if number in chosen:
            raise UserError(f"layers names layer {number} twice; name each once")
        chosen.add(number)
    return tuple(sorted(chosen)) or None


def residual_stream(
    loaded: PretrainedModel,
    tokens_BT: np.ndarray,
    module: Any = None,
    layers: tuple[int, ...] | None = None,
    **more: Any,
) -> tuple[list[Any], Any]:
    """Return the residual stream of one batch, layer by layer, and the output of `forward`."""
    with Listener(loaded, layers=layers) as heard:
        output = forward(loaded, tokens_BT, module, **more)
    return heard.layers, output


def read_activations(
    loaded: PretrainedModel,
    tokens_ZWT: np.ndarray,
    batch_size: int,
    heads: bool = False,
    plain: bool = False,
    reported: bool = False,
    layers: tuple[int, ...] | None = None,
) -> BatchActivations:
    """Read Z inputs of W windows, `batch_size` in a pass, into the arrays to measure, in float32.

    `heads` reads queries and keys too. `reported` keeps the hidden states that the model reports
    instead of block outputs. Only `layers` are kept (None: all). UserError where a number is not
    finite, or a layer or an attention call was not captured.
    """
    inputs, windows = tokens_ZWT.shape[:2]
    arrays: dict[str, np.ndarray] = {}  # (Z, layer, W, …)
    more = {"output_hidden_states": True} if reported else {}
    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        rows = slice(start, start + batch_size)
        with Listener(loaded, to_array, heads, plain, layers) as heard:
            output = forward(loaded, tokens_ZWT[z, rows], **more)
        numbers = range(heard.ran) if layers is None else layers
        states = [to_array(output.hidden_states[n]) for n in numbers] if reported else heard.layers
        blocks = range(heard.attended) if layers is None else [n - 1 for n in numbers if n]
        parts = {
            RESIDUALS: states,
            "queries": [call.q_BHTK.swapaxes(1, 2) for call in heard.calls],
            "keys": [call.k_BHTK.swapaxes(1, 2) for call in heard.calls],
        }
        if loaded.reads_text and heard.layers:
            check_positions(loaded, tokens_ZWT.shape[2], heard.layers[0].shape[1])
        for name, streams in parts.items():
            for n, x in enumerate(streams):
                layer = (numbers if name == RESIDUALS else blocks)[n]
                check_finite_activations(x, loaded, f"{name} of layer {layer}")
                if (own := x.shape[1:]) != (shape := streams[0].shape[1:]):
                    what = f"{name} of layer {layer} has shape {own}, other layers have {shape}"
                    raise UserError(f"{loaded.class_name}: {what}; {ENTRY}")
                if name not in arrays:
                    arrays[name] = np.empty((inputs, len(streams), windows, *shape), np.float32)
                arrays[name][z, n, rows] = x
    read = (arrays.get(name) for name in (RESIDUALS, "queries", "keys"))
    return BatchActivations(*read, layers=layers)


def check_positions(loaded: PretrainedModel, tokens: int, positions: int) -> None:
    """Raise UserError where a text of so many tokens does not have its own positions."""
    if positions != tokens // tokens_per_position(loaded.model.config):
        what = f"{loaded.class_name} has {positions} positions for {tokens} tokens"
        raise UserError(f"{what}, so a token's vector is not known; {ENTRY}")


def to_array(x: torch.Tensor) -> np.ndarray:
    """Copy a tensor to float32 of NumPy."""
    return x.detach().to("cpu", torch.float32, copy=True).numpy()


def check_finite_activations(x: np.ndarray, loaded: PretrainedModel, name: str) -> None:
    """Raise UserError where a number is not finite."""
    if not np.isfinite(x).all():
        computed_in = f"computed in {loaded.attributes['computed_in']}"
        what = f"{name} holds numbers that are not finite, {computed_in}"
        raise SettingError(f"{what}; try pretrained.dtype=float32", "pretrained.dtype")


def clamp_coordinates(
    loaded: PretrainedModel,
    most: float,
    tokens_WT: np.ndarray,
    batch_size: int,
    needed: bool = True,
) -> str:
    """Clamp every coordinate to at most `most` in absolute value after every block from now on.

    Later blocks read the clamped values. Return how many vectors of these windows are clamped.
    UserError where none is, though `needed`: early revisions may have nothing to clamp.
    """
    if loaded.adapter == UNKNOWN:
        raise UserError(f"pretrained.clamp: blocks of {loaded.class_name} are not known; {ENTRY}")
    clamped, vectors = 0, 0

    def after(_: Any, args: tuple, output: Any) -> Any:
        nonlocal clamped, vectors
        large_BT = (x_BTD := first_output(output)).abs().amax(-1) > most
        clamped, vectors = clamped + int(large_BT.sum()), vectors + large_BT.numel()
        x_BTD = x_BTD.clamp(-most, most)
        return (x_BTD, *output[1:]) if isinstance(output, tuple) else x_BTD

    for module in loaded.block_modules:
        module.register_forward_hook(after)
    for start in range(0, len(tokens_WT), batch_size):
        forward(loaded, tokens_WT[start : start + batch_size])
    if needed and not clamped:
        raise UserError(f"pretrained.clamp is {most:g}, but no coordinate is larger; lower it")
    return f"coordinates above {most:g}, in {clamped} of {vectors} vectors after blocks"
