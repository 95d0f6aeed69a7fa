"""What is checked of a pretrained model before its numbers are believed: a function each, UserError where it fails.

Each returns what it found, in words or numbers that tables record.
"""

from typing import Any

import numpy as np
import torch

from panel.families import quantities
from panel.panel import MEASURED
from pretrained.extract import CAPTURE, Call, check_counts, listening, read
from pretrained.load import Loaded
from pretrained.windows import Windows, order_0
from workdir.errors import UserError

CLOSE = {"float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}  # relative to the largest number compared
MASKED = 0.15  # share of the tokens that a masked model has to name
HALF = torch.finfo(torch.float32).min / 2  # a mask has 0 where a key is seen, and the least number where it is not


def final_norm(loaded: Loaded, tokens_T: np.ndarray) -> str:
    """The last residual stream that was caught, through the final norm, must be the model's last hidden state.

    So the stream is that before the norm, whatever `hidden_states` holds in this model and version.
    """
    streams: dict[int, Any] = {}
    with listening(loaded, lambda n, x_BTD: streams.update({n: x_BTD}), lambda n, call: None) as counts:
        last = read(loaded, tokens_T[None]).last_hidden_state
    check_counts(loaded, counts, heads=False)
    norm = _below(loaded.base, loaded.adapter.final_norm)
    normed = streams[loaded.blocks] if norm is None else norm(streams[loaded.blocks])
    far = _difference(normed, last)
    if far > CLOSE[loaded.about["computed_in"]]:
        words = "the last block" if norm is None else f"{loaded.adapter.final_norm} of the last block"
        raise UserError(
            f"{type(loaded.model).__name__}: {words} is not the last hidden state (they differ by {far:.2g} of its "
            "largest number); the entry in pretrained/adapters.py does not fit"
        )
    words = "no final norm" if norm is None else f"before the final norm ({loaded.adapter.final_norm})"
    return f"output of every block, {words}; the last one gives the last hidden state to {far:.0e}"


def _below(base: Any, path: str | None) -> Any:
    for name in path.split(".") if path else ():
        base = None if base is None else getattr(base, name)
    return base if path else None


def attention(loaded: Loaded, tokens_T: np.ndarray) -> tuple[np.ndarray, str]:
    """Which key each query sees; and that softmax of the captured scores is what the model's own attention says."""
    calls: list[Call] = []
    with listening(loaded, lambda n, x_BTD: None, lambda n, call: calls.append(call)) as counts:
        read(loaded, tokens_T[None])
    check_counts(loaded, counts, heads=True)
    visible_TT = _visible(loaded, calls, calls[0].q_BHTK.shape[2])
    before = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")
    try:
        own = read(loaded, tokens_T[None], output_attentions=True).attentions
    finally:
        loaded.model.set_attn_implementation(before)
    seen_TT = torch.as_tensor(visible_TT)
    furthest = 0.0
    for call, weights_BHTT in zip(calls, own or (), strict=True):
        q_BHTK, k_BHTK = call.q_BHTK.float(), call.k_BHTK.float()
        scores_BHTT = q_BHTK @ k_BHTK.transpose(2, 3) * q_BHTK.shape[-1] ** -0.5
        found = scores_BHTT.masked_fill(~seen_TT.to(scores_BHTT.device), -torch.inf).softmax(-1)
        furthest = max(furthest, float((found - weights_BHTT.float()).abs().max()))
    if furthest > CLOSE[loaded.about["computed_in"]]:
        raise UserError(
            f"{type(loaded.model).__name__}: softmax of queries and keys differs from the model's own attention by "
            f"{furthest:.2g}: something else enters it (a bias, a sink, a cap); "
            "leave the families attention and projection out of measure.families"
        )
    pairs = int(visible_TT.sum())
    words = f"{CAPTURE} over sdpa, {len(calls)} calls a pass for {loaded.blocks} blocks, {pairs} visible pairs"
    return visible_TT, f"{words}; softmax of q and k is the model's own (eager) to {furthest:.0e}"


def _visible(loaded: Loaded, calls: list[Call], tokens: int) -> np.ndarray:
    """The same in all blocks and heads, and with no bias beside it: the panel knows one mask."""
    masks = []
    advice = "leave the families attention and projection out of measure.families"
    for call in calls:
        if call.more:
            raise UserError(f"{type(loaded.model).__name__}: {', '.join(call.more)} enters the scores; {advice}")
        mask = torch.zeros(1, 1, tokens, tokens) if call.mask is None else call.mask.float().cpu()
        if mask.shape[:2] != (1, 1) or bool(((mask != 0) & (mask > HALF)).any()):
            raise UserError(f"{type(loaded.model).__name__}: a bias enters the scores; {advice}")
        masks.append((mask == 0)[0, 0].numpy())
    if any((mask != masks[0]).any() for mask in masks):
        raise UserError(f"{type(loaded.model).__name__}: blocks see different keys (sliding windows); {advice}")
    return masks[0]


def bits_per_byte(loaded: Loaded, windows: Windows, batch_size: int, most: float | None) -> dict[str, Any]:
    """Loss of the model on the first batch, in bits per byte of the text; refused where it knows nothing of it.

    The bound is the entropy of the frequencies of the text's tokens: a model that does no better has a wrong tokenizer
    or wrong weights, whatever its geometry looks like.
    """
    bound = order_0(windows.counts_V) * windows.tokens_per_byte if most is None else most
    task = _task(loaded, windows)
    if task is None:
        return {"bits_per_byte": "not checked: the file has no head that predicts tokens", "bits_bound": bound}
    bits = task(loaded, windows, batch_size) * windows.tokens_per_byte
    found = {"bits_per_byte": bits, "bits_bound": bound, "bits_of": task.__doc__}
    if not bits < bound:
        said = "the frequencies of the text's tokens" if most is None else "pretrained.most_bits"
        raise UserError(
            f"the model needs {bits:.2f} bits a byte of this text, and {said} {bound:.2f}: wrong tokenizer, wrong "
            f"weights, or a text it does not know; --config.pretrained.most_bits={np.ceil(bits):.0f} measures it anyway"
        )
    return found


def _next(loaded: Loaded, windows: Windows, batch_size: int) -> float:
    """next token, given those before it in its window"""
    tokens_WT, scored_T = windows.probe.tokens_GWT[0], ~windows.fixed_T[1:]
    losses = []
    for start in range(0, len(tokens_WT), batch_size):
        part_WT = tokens_WT[start : start + batch_size]
        logits = read(loaded, part_WT, loaded.model).logits[:, :-1].float()
        losses.append(_loss(logits, part_WT[:, 1:])[:, scored_T])
    return float(np.concatenate(losses).mean())


def _masked(loaded: Loaded, windows: Windows, batch_size: int) -> float:
    """masked tokens (15 %), given all others of their window"""
    tokens_WT = windows.probe.tokens_GWT[0]
    hidden_WT = (np.random.default_rng(0).random(tokens_WT.shape) < MASKED) & ~windows.fixed_T
    read_WT = np.where(hidden_WT, windows.mask_token, tokens_WT)
    losses = []
    for start in range(0, len(tokens_WT), batch_size):
        rows = slice(start, start + batch_size)
        logits = read(loaded, read_WT[rows], loaded.model).logits.float()
        losses.append(_loss(logits, tokens_WT[rows])[hidden_WT[rows]])
    return float(np.concatenate(losses).mean())


def _task(loaded: Loaded, windows: Windows) -> Any:
    name = type(loaded.model).__name__
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return _next
    return _masked if name.endswith("ForMaskedLM") and windows.mask_token is not None else None


def _loss(logits_WTV: Any, targets_WT: np.ndarray) -> np.ndarray:
    """Bits of every target."""
    targets = torch.as_tensor(targets_WT, dtype=torch.long, device=logits_WTV.device)
    chosen = logits_WTV.gather(-1, targets[..., None])[..., 0]
    return ((logits_WTV.logsumexp(-1) - chosen) / np.log(2)).cpu().numpy()


def vocabulary(loaded: Loaded, windows: Windows) -> None:
    """Every token must have its embedding."""
    rows, largest = loaded.base.get_input_embeddings().weight.shape[0], len(windows.counts_V) - 1
    if largest >= rows:
        raise UserError(f"the tokenizer gives token {largest}, the model has {rows}: this tokenizer is not the model's")


def shape(loaded: Loaded, window: int, head: int) -> None:
    """No window may be longer than the model has positions, and a head that is kept must be there."""
    config = loaded.model.config
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and window > longest:
        raise UserError(f"window is {window}; this model has {longest} positions")
    if head >= config.num_attention_heads:
        raise UserError(
            f"measure.projected_head is {head}; the model has {config.num_attention_heads} heads, from 0 on"
        )


def same_weights(step: int, digest: str, others: dict[int, str]) -> None:
    """Two steps of a training have other weights: a hub may hold one file under several names."""
    for other, theirs in others.items():
        if other != step and theirs == digest:
            raise UserError(
                f"steps {min(step, other)} and {max(step, other)} hold the same weights (sha256 {digest[:12]}…), which "
                "no training does; leave the wrong one out of pretrained.revisions"
            )


def noise_floor(values: dict, again: dict) -> dict[str, float]:
    """By how much each quantity of the first batch moves when the model reads other numbers of windows at a time."""
    moved = {}
    for name, value in values[MEASURED].items():
        far = np.abs(np.asarray(value, np.float64)[:1, 0] - np.asarray(again[MEASURED][name], np.float64)[:1, 0])
        whole = far[..., 0] if quantities()[name].resampling else far  # the first replicate is the value itself
        moved[name] = float(np.nanmax(whole)) if np.isfinite(whole).any() else float("nan")
    return moved


def _difference(one: Any, other: Any) -> float:
    one, other = one.detach().float(), other.detach().float()
    return float((one - other).abs().max() / other.abs().max())
