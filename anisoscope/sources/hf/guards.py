"""Check a pretrained model before its numbers are trusted: UserError where a check fails.

Checks return what tables record of them. Letters: G batches.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy import stats

from anisoscope.metrics.quantity import MEASURED
from anisoscope.metrics.registry import quantities
from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN
from anisoscope.sources.hf.extract import forward, residual_stream
from anisoscope.sources.hf.layer_capture import (
    LEAVE_ATTENTION,
    AttentionCall,
    Listener,
    attention_scores,
)
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.token_windows import InputWindows
from anisoscope.utils.errors import UserError

# tolerance relative to the largest number compared
CLOSE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
SAME = 1e-3  # tolerance of hidden states, relative: float16 may round in another order
NEXT_TOKEN, MASKED_TOKEN = "next token", "masked tokens"
SEES_TARGET = "not checked: the model sees the token that it is to predict"
CHECKED_TOKENS = 32  # tokens of a window in checks that any window serves
LEAST_TOKENS = 256  # tokens of which the loss is computed at least
MASKED = 0.15  # share of the tokens that a masked model must predict


class AttentionPattern(NamedTuple):
    """Mask and bias of every block, added to its scores <q, k>/sqrt(K)."""

    visible_NTT: np.ndarray  # which key (column) each query sees
    bias_NHTT: np.ndarray | None = None  # added at visible keys; None: nothing

    def choose(self, layers: tuple[int, ...] | None) -> "AttentionPattern":
        """Keep the blocks of these layers (None: all)."""
        if layers is None:
            return self
        blocks = [layer - 1 for layer in layers if layer]
        bias_NHTT = None if self.bias_NHTT is None else self.bias_NHTT[blocks]
        return AttentionPattern(self.visible_NTT[blocks], bias_NHTT)


def shorten(loaded: PretrainedModel, tokens_T: np.ndarray) -> np.ndarray:
    """Return the beginning of a window of text, for a check; classes without an entry get all.

    Some of those, such as BigBird, read a short window in another way than a long one.
    """
    return (
        tokens_T[:CHECKED_TOKENS] if loaded.reads_text and loaded.adapter != UNKNOWN else tokens_T
    )


def check_final_norm(loaded: PretrainedModel, tokens_T: np.ndarray) -> str:
    """Check that the last captured residual stream yields the model's last hidden state.

    This shows that the stream is taken before the final norm, whatever `hidden_states` holds.
    """
    name, lasts, tokens_T = loaded.class_name, [], shorten(loaded, tokens_T)
    with loaded.stack.register_forward_hook(
        lambda module, args, output: lasts.append(output.last_hidden_state)
    ):
        streams, _ = residual_stream(loaded, tokens_T[None])
    if loaded.adapter == UNKNOWN:
        again = forward(loaded, tokens_T[None]).last_hidden_state
        if not _is_close(loaded, again, lasts[0]):
            raise UserError(f"{name}: its passes are random; set it to evaluation mode")
        return f"hidden_states of {name}, without an entry: the last may be after a final norm"
    if not _is_close(loaded, final := loaded.apply_final_norm(streams[-1]), lasts[0]):
        path = f"{loaded.adapter.final_norm or 'no final norm'} of the last block"
        raise UserError(f"{name}: {path} differs from the last hidden state; {ENTRY}")
    norm = loaded.adapter.final_norm
    where = f"before the final norm ({norm})" if norm else "no final norm"
    agreement = f"the last gives the last hidden state to {distance(final, lasts[0]):.0e}"
    return f"block outputs, {where}; {agreement}"


def check_reported(loaded: PretrainedModel, tokens_T: np.ndarray) -> str:
    """Find which of the reported `hidden_states`, which papers read, are block outputs."""
    streams, output = residual_stream(loaded, tokens_T[None], output_hidden_states=True)
    states = getattr(output, "hidden_states", None) or ()
    if [state.shape for state in states] != [x.shape for x in streams]:
        what = f"{loaded.class_name} reports {len(states)} hidden states, not those of its blocks"
        raise UserError(f"{what}; set hidden_states=blocks")
    pairs = enumerate(zip(states, streams, strict=True))
    others = [str(n) for n, (state, x) in pairs if not distance(state, x) <= SAME]
    return f"hidden states as reported; no block outputs: layers {', '.join(others) or 'none'}"


def check_attention(loaded: PretrainedModel, tokens_WT: np.ndarray) -> tuple[AttentionPattern, str]:
    """Check that softmax of q, k and what is added to scores is the model's own attention.

    The pattern is read from the first window and compared in all windows, since it may depend on
    positions only.
    """
    name, adapter, computed_in = loaded.class_name, loaded.adapter, loaded.attributes["computed_in"]
    if adapter == UNKNOWN:
        raise UserError(f"{name} has no entry (docs/howto/adding.md); {LEAVE_ATTENTION}")
    if adapter.extra_scores:
        raise UserError(f"{name}: {adapter.extra_scores}; {LEAVE_ATTENTION}")
    with Listener(loaded, heads=True) as heard:
        forward(loaded, tokens_WT)
    close, furthest = CLOSE[computed_in], 0.0
    pattern = _pattern(heard.calls, 0.0 if adapter.score_exponent is None else close / 10)
    expected = model_outputs(loaded, tokens_WT, "attentions")
    for n, (call, weights_BHTT) in enumerate(zip(heard.calls, expected, strict=True)):
        scores_BHTT = attention_scores(AttentionCall(call.q_BHTK.float(), call.k_BHTK.float()))
        device = scores_BHTT.device
        if pattern.bias_NHTT is not None:
            scores_BHTT = scores_BHTT + torch.as_tensor(pattern.bias_NHTT[n], device=device)
        visible_TT = torch.as_tensor(pattern.visible_NTT[n], device=device)
        softmax_BHTT = scores_BHTT.masked_fill(~visible_TT, -torch.inf).softmax(-1)
        furthest = max(furthest, float((softmax_BHTT - weights_BHTT.float()).abs().max()))
    if not furthest <= close:
        what = f"{name}: softmax of queries and keys differs from the model's own attention"
        why = f"in {computed_in} (another term, or rounding)"
        raise UserError(f"{what} by {furthest:.2g} {why}; {LEAVE_ATTENTION}")
    return pattern, f"softmax of q and k is the model's own (eager) to {furthest:.0e}"


def model_outputs(loaded: PretrainedModel, tokens_WT: np.ndarray, name: str) -> tuple[Any, ...]:
    """Return the model's own `attentions` or `hidden_states`, without a fused kernel."""
    outputs: list[Any] = []
    hook = loaded.stack.register_forward_hook(
        lambda module, args, output: outputs.append(getattr(output, name, None))
    )
    before = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")
    try:
        from_base = getattr(forward(loaded, tokens_WT, **{f"output_{name}": True}), name)
    finally:
        loaded.model.set_attn_implementation(before)
        hook.remove()
    return outputs[0] or from_base or ()


def _pattern(calls: list[AttentionCall], rounding: float) -> AttentionPattern:
    """Read the pattern of the first window; a bias within the rounding of scores counts as none."""
    added_NHTT, largest = [], 0.0
    for call in calls:
        largest = max(largest, float(attention_scores(call._replace(added=None)).abs().max()))
        (_, heads, tokens, _), added = call.q_BHTK.shape, call.added
        added = torch.zeros(1) if added is None else added[:1].float().cpu()
        added_NHTT.append(added.expand(1, heads, tokens, tokens)[0].numpy())
    finite_NHTT = np.isfinite(added_NHTT)
    bias_NHTT = np.where(finite_NHTT, added_NHTT, 0)
    none = np.abs(bias_NHTT).max() <= rounding * largest
    return AttentionPattern(finite_NHTT.any(1), None if none else bias_NHTT)


def check_bits_per_byte(
    loaded: PretrainedModel, windows: InputWindows, batch_size: int, most: float | None
) -> dict[str, Any]:
    """Compute the model's loss on an eighth of the first batch, in bits per byte of the text.

    A model with more than `most` bits is refused; None: the unigram entropy of the text's tokens. A
    model that does no better has a wrong tokenizer or wrong weights.
    """
    bound = bits_bound(windows) if most is None else most
    task = head_task(loaded.class_name)
    if task is None or (task == MASKED_TOKEN and windows.mask_token is None):
        none = "not checked: the file has no head that predicts tokens"
        return {"bits_per_byte": none, "bits_bound": bound}
    if task == NEXT_TOKEN and sees_later(loaded, windows.probe.tokens_GWT[0, 0]):
        return {"bits_per_byte": SEES_TARGET, "bits_of": SEES_TARGET, "bits_bound": bound}
    bits_N = _token_bits(loaded, windows, batch_size, task)
    bits = float(bits_N.mean(dtype=np.float64)) * windows.tokens_per_byte
    if not bits < bound:
        what = f"the model needs {bits:.2f} bits per byte of this text, above {bound:.2f}"
        advice = f"or set pretrained.max_bits_per_byte={np.floor(bits) + 1:.0f}"
        raise UserError(f"{what}: check tokenizer, weights and text, {advice}")
    return {"bits_per_byte": bits, "bits_bound": bound, "bits_of": f"{task}, {bits_N.size} tokens"}


def bits_bound(windows: InputWindows) -> float:
    """Return the bits per byte of a unigram model, which a trained model must beat."""
    return float(stats.entropy(windows.counts_V, base=2)) * windows.tokens_per_byte


def sees_later(loaded: PretrainedModel, tokens_T: np.ndarray) -> bool:
    """Return whether logits in a window's first half change with tokens of its second half."""
    tokens_T = shorten(loaded, tokens_T)
    half = len(tokens_T) // 2
    later_T = np.concatenate([tokens_T[:half], np.roll(tokens_T, 1)[half:][::-1]])
    pair_BT = np.stack([tokens_T, later_T])
    first, second = forward(loaded, pair_BT, loaded.model).logits[:, :half]
    return distance(first, second) > CLOSE[loaded.attributes["computed_in"]] / 10


def _token_bits(
    loaded: PretrainedModel, windows: InputWindows, batch_size: int, task: str
) -> np.ndarray:
    """Compute the bits of every scored token of some windows of the first batch."""
    all_WT = windows.probe.tokens_GWT[0]
    read_WT = target_WT = all_WT[: max(len(all_WT) // 8, -(-LEAST_TOKENS // all_WT.shape[1]))]
    scored_WT = np.broadcast_to(np.append(~windows.fixed_T[1:], False), read_WT.shape)
    if task == NEXT_TOKEN:
        target_WT = np.roll(read_WT, -1, axis=1)
    else:
        random_WT = np.random.default_rng(0).random(read_WT.shape)
        scored_WT = (random_WT < MASKED) & ~windows.fixed_T
        read_WT = np.where(scored_WT, windows.mask_token, read_WT)
    bits = []
    for start in range(0, len(read_WT), batch_size):
        rows = slice(start, start + batch_size)
        logits_WTV = forward(loaded, read_WT[rows], loaded.model).logits.float()
        targets = torch.as_tensor(target_WT[rows], dtype=torch.long, device=logits_WTV.device)
        logit_WT = logits_WTV.gather(-1, targets[..., None])[..., 0]
        bits_WT = ((logits_WTV.logsumexp(-1) - logit_WT) / np.log(2)).cpu().numpy()
        bits.append(bits_WT[scored_WT[rows]])
    return np.concatenate(bits)


def head_task(name: str) -> str | None:
    """Return what the head of a class predicts; None: it does not predict tokens."""
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return NEXT_TOKEN
    return MASKED_TOKEN if name.endswith("ForMaskedLM") else None


def check_vocabulary(loaded: PretrainedModel, largest: int) -> None:
    """Refuse tokens without an embedding, except in models without a table, such as CANINE."""
    try:
        rows = loaded.base.get_input_embeddings().weight.shape[0]
    except NotImplementedError:
        return
    if largest >= rows:
        what = f"the tokenizer returns token {largest}, the model has {rows} embeddings"
        raise UserError(f"{what}; pass the model's tokenizer")


def max_positions(loaded: PretrainedModel) -> int | None:
    """Return how many positions a window may have; None: unlimited or unknown."""
    longest = getattr(loaded.model.config, "max_position_embeddings", None)
    if longest is not None:  # positions of RoBERTa's family follow the padding row
        table = getattr(getattr(loaded.base, "embeddings", None), "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        longest -= 0 if padding is None else padding + 1
    return longest if longest is not None and longest > 0 else None  # -1 stands for any number


def check_window(loaded: PretrainedModel, window: int) -> None:
    """Refuse a window longer than the model's positions."""
    longest = max_positions(loaded)
    if longest is not None and longest < window:
        raise UserError(f"window is {window}, this model has {longest} positions; lower window")


def noise_floor(values: dict, again: dict) -> dict[str, float]:
    """Return how far each quantity moves when the first batch is read with another batch size."""
    floor = {}
    for name, value in values[MEASURED].items():
        first, second = (np.asarray(x, np.float64)[:1, 0] for x in (value, again[MEASURED][name]))
        with np.errstate(invalid="ignore"):  # both are infinite
            move = np.abs(first - second)
        move = move[..., 0] if quantities()[name].resampling else move  # replicate 0 is the value
        floor[name] = float(np.nanmax(move)) if np.isfinite(move).any() else float("nan")
    return floor


def distance(x: Any, y: Any) -> float:
    """Return the largest difference, relative to the largest number of y."""
    if x.shape != y.shape:
        return float("inf")
    x, y = x.detach().float(), y.detach().float()
    return float((x - y).abs().max() / y.abs().max())


def _is_close(loaded: PretrainedModel, x: Any, y: Any) -> bool:
    return distance(x, y) <= CLOSE[loaded.attributes["computed_in"]]
