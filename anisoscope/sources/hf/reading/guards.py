"""What is checked of a pretrained model before its numbers are believed: a function each, UserError
where it fails.

Each returns what it found, in words or numbers that tables record.

Letters: G probe batches.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.panel import MEASURED
from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel, find_module
from anisoscope.sources.hf.reading.extract import (
    CAPTURE,
    LEAVE,
    Call,
    Listener,
    check_counts,
    forward,
    residual_stream,
    scores_of,
)
from anisoscope.sources.hf.reading.token_windows import Windows, unigram_entropy
from anisoscope.utils.errors import UserError

# relative to the largest number compared
CLOSE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.02}
SAME = 1e-3  # of hidden states, relative to the largest number: float16 may round in another order
NEXT_TOKEN, MASKED_TOKEN = "next token", "masked tokens"
SHOWN = "not checked: the model sees the token that it is to predict"
MASKED = 0.15  # share of the tokens that a masked model has to name


class AttentionPattern(NamedTuple):
    """What the scores of every block are beside <q, k>/sqrt(K)."""

    visible_NTT: np.ndarray  # which key (column) each query sees
    bias_NHTT: np.ndarray | None  # added where a key is seen; None: nothing


def check_final_norm(loaded: PretrainedModel, tokens_T: np.ndarray) -> str:
    """The last residual stream that was caught, through the final norm, must be the model's last
    hidden state.

    So the stream is that before the norm, whatever `hidden_states` holds in this model and version.
    """
    lasts: list[Any] = []
    with loaded.part.register_forward_hook(
        lambda module, args, output: lasts.append(output.last_hidden_state)
    ):
        streams, _ = residual_stream(loaded, tokens_T[None])
    (last,) = lasts
    if loaded.adapter == UNKNOWN:
        again = forward(loaded, tokens_T[None]).last_hidden_state
        if (far := _difference(again, last)) > CLOSE[loaded.about["computed_in"]]:
            raise UserError(
                f"{type(loaded.model).__name__} gives other vectors each time that it reads one window (they differ by "
                f"{far:.2g}): its passes are random"
            )
        same = (
            "it may have gone through a final norm"
            if _difference(streams[-1], last) == 0
            else "it is raw"
        )
        return f"hidden_states as {type(loaded.model).__name__} gives them, without an entry; of the last, {same}"
    norm = find_module(loaded.base, loaded.adapter.final_norm)
    far = _difference(loaded.finished(streams[-1]), last)
    if far > CLOSE[loaded.about["computed_in"]]:
        words = (
            "the last block" if norm is None else f"{loaded.adapter.final_norm} of the last block"
        )
        raise UserError(
            f"{type(loaded.model).__name__}: {words} is not the last hidden state (they differ by {far:.2g} of its "
            "largest number); the entry in sources/hf/adapters.py does not fit"
        )
    words = (
        "no final norm" if norm is None else f"before the final norm ({loaded.adapter.final_norm})"
    )
    part = f" of {loaded.adapter.part}" if loaded.adapter.part else ""
    return f"output of every block{part}, {words}; the last one gives the last hidden state to {far:.0e}"


def check_reported(loaded: PretrainedModel, tokens_T: np.ndarray) -> str:
    """Which of the model's `hidden_states`, the definition of the papers, are outputs of blocks, in
    words.

    UserError where they are not alike.
    """
    streams, output = residual_stream(loaded, tokens_T[None], output_hidden_states=True)
    states = getattr(output, "hidden_states", None) or ()
    if [state.shape for state in states] != [stream.shape for stream in streams]:
        raise UserError(
            f"{type(loaded.model).__name__} reports {len(states)} hidden states, not one like the output of each of "
            f"{loaded.blocks} blocks and their input; --config.hidden_states=blocks reads the blocks themselves"
        )
    others = [
        str(n) for n, state in enumerate(states) if not _difference(state, streams[n]) <= SAME
    ]
    words = (
        f"all outputs of blocks but that of layer {', '.join(others)}"
        if others
        else "all outputs of blocks"
    )
    same = _difference(states[-1], output.last_hidden_state) <= SAME
    last = "the last hidden state" if same else "not the last hidden state"
    return f"hidden states as transformers reports them: {words}; the last one is {last}"


def check_attention(loaded: PretrainedModel, tokens_WT: np.ndarray) -> tuple[AttentionPattern, str]:
    """Which key each query sees, and what is added; and that softmax of q, k and these is the
    model's own attention.

    What is seen and added is read of the first window, and compared in all: it may hang on
        positions alone.
    """
    if loaded.adapter == UNKNOWN:
        raise UserError(
            f"{type(loaded.model).__name__} has no entry in sources/hf/adapters.py: {LEAVE}"
        )
    if loaded.adapter.mixed:
        raise UserError(f"{type(loaded.model).__name__}: {loaded.adapter.mixed}; {LEAVE}")
    calls: list[Call] = []
    with Listener(loaded, on_call=lambda n, call: calls.append(call)) as counts:
        forward(loaded, tokens_WT)
    check_counts(loaded, counts, heads=True)
    if len(shapes := {tuple(call.q_BHTK.shape[1::2]) for call in calls}) > 1:
        name = type(loaded.model).__name__
        raise UserError(f"{name}: blocks have heads of {sorted(shapes)}, (number, width); {LEAVE}")
    close = CLOSE[loaded.about["computed_in"]]
    seen = _seen(calls, 0.0 if loaded.adapter.own is None else close / 10)
    furthest = 0.0
    for n, (call, weights_BHTT) in enumerate(
        zip(calls, model_outputs(loaded, tokens_WT, "attentions"), strict=True)
    ):
        scores_BHTT = scores_of(Call(call.q_BHTK.float(), call.k_BHTK.float(), None))
        if seen.bias_NHTT is not None:
            scores_BHTT = scores_BHTT + torch.as_tensor(
                seen.bias_NHTT[n], device=scores_BHTT.device
            )
        visible_TT = torch.as_tensor(seen.visible_NTT[n], device=scores_BHTT.device)
        softmax_BHTT = scores_BHTT.masked_fill(~visible_TT, -torch.inf).softmax(-1)
        furthest = max(furthest, float((softmax_BHTT - weights_BHTT.float()).abs().max()))
    if furthest > close:
        computed_in = loaded.about["computed_in"]
        rounded = (
            ""
            if computed_in == "float32"
            else f", or it is the rounding of {computed_in}: try float32"
        )
        raise UserError(
            f"{type(loaded.model).__name__}: softmax of queries and keys differs from the model's own attention by "
            f"{furthest:.2g}: something else enters it (a sink, a cap, a bias that is not of positions alone){rounded}"
            f"; {LEAVE}"
        )
    return seen, _words(loaded, seen, len(calls), furthest)


def model_outputs(loaded: PretrainedModel, tokens_WT: np.ndarray, name: str) -> tuple[Any, ...]:
    """The model's own `attentions` or `hidden_states`, of the stage that holds the blocks, without
    a fused kernel.
    """
    said: list[Any] = []
    hook = loaded.part.register_forward_hook(
        lambda module, args, output: said.append(getattr(output, name, None))
    )
    before = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("eager")
    try:
        whole = getattr(forward(loaded, tokens_WT, **{f"output_{name}": True}), name)
    finally:
        loaded.model.set_attn_implementation(before)
        hook.remove()
    return said[0] or whole or ()


def _seen(calls: list[Call], rounding: float) -> AttentionPattern:
    """Of the first window. A bias is none where it is no more than the scores are rounded by."""
    added_NHTT, largest = [], 0.0
    for call in calls:
        largest = max(largest, float(scores_of(call._replace(added=None)).abs().max()))
        (_, heads, tokens, _), added = call.q_BHTK.shape, call.added
        added = torch.zeros(1) if added is None else added[:1].float().cpu()
        added_NHTT.append(added.expand(1, heads, tokens, tokens)[0].numpy())
    visible_NTT = np.stack([np.isfinite(added_HTT).any(0) for added_HTT in added_NHTT])
    bias_NHTT = np.stack(
        [np.where(np.isfinite(added_HTT), added_HTT, 0) for added_HTT in added_NHTT]
    )
    none = np.abs(bias_NHTT).max() <= rounding * largest
    return AttentionPattern(visible_NTT, None if none else bias_NHTT)


def _words(loaded: PretrainedModel, seen: AttentionPattern, calls: int, furthest: float) -> str:
    way = f"{CAPTURE} over sdpa" if loaded.adapter.own is None else "the model's own way"
    pairs = sorted({int(visible_TT.sum()) for visible_TT in seen.visible_NTT})
    said = f"{way}, {calls} calls a pass for {loaded.blocks} blocks, {' or '.join(map(str, pairs))} visible pairs"
    bias = "" if seen.bias_NHTT is None else " and a bias by position"
    return f"{said}; softmax of q and k{bias} is the model's own (eager) to {furthest:.0e}"


def check_bits_per_byte(
    loaded: PretrainedModel, windows: Windows, batch_size: int, most: float | None
) -> dict[str, Any]:
    """Loss of the model on the first batch, in bits per byte of the text; refused where it knows
    nothing of it.

    The bound is the entropy of the frequencies of the text's tokens: a model that does no better
    has a wrong tokenizer or wrong weights, whatever its geometry looks like.
    """
    bound = bits_bound(windows) if most is None else most
    tasks = {NEXT_TOKEN: _next, MASKED_TOKEN: _masked if windows.mask_token is not None else None}
    if (task := tasks.get(head_task(type(loaded.model).__name__))) is None:
        return {
            "bits_per_byte": "not checked: the file has no head that predicts tokens",
            "bits_bound": bound,
        }
    if task is _next and sees_later(loaded, windows.probe.tokens_GWT[0, 0]):
        return {"bits_per_byte": SHOWN, "bits_of": SHOWN, "bits_bound": bound}
    bits = task(loaded, windows, batch_size) * windows.tokens_per_byte
    about = {"bits_per_byte": bits, "bits_bound": bound, "bits_of": task.__doc__}
    if not bits < bound:
        said = "the frequencies of the text's tokens" if most is None else "pretrained.most_bits"
        raise UserError(
            f"the model needs {bits:.2f} bits a byte of this text, and {said} {bound:.2f}: wrong tokenizer, wrong "
            f"weights, or a text it does not know; --config.pretrained.most_bits={np.ceil(bits):.0f} measures it anyway"
        )
    return about


def bits_bound(windows: Windows) -> float:
    """Bits per byte that a model needs at most which knows its text."""
    return unigram_entropy(windows.counts_V) * windows.tokens_per_byte


def sees_later(loaded: PretrainedModel, tokens_T: np.ndarray) -> bool:
    """Return whether logits of the first half of a window change with the tokens of its second
    half.
    """
    half = len(tokens_T) // 2
    later_T = np.concatenate([tokens_T[:half], np.roll(tokens_T, 1)[half:][::-1]])
    both = (
        forward(loaded, x_T[None], loaded.model).logits[:, :half] for x_T in (tokens_T, later_T)
    )
    return _difference(*both) > CLOSE[loaded.about["computed_in"]] / 10


def _next(loaded: PretrainedModel, windows: Windows, batch_size: int) -> float:
    """next token, given those before it in its window"""
    tokens_WT, scored_T = windows.probe.tokens_GWT[0], ~windows.fixed_T[1:]
    losses = []
    for start in range(0, len(tokens_WT), batch_size):
        part_WT = tokens_WT[start : start + batch_size]
        logits = forward(loaded, part_WT, loaded.model).logits[:, :-1].float()
        losses.append(_loss(logits, part_WT[:, 1:])[:, scored_T])
    return float(np.concatenate(losses).mean())


def _masked(loaded: PretrainedModel, windows: Windows, batch_size: int) -> float:
    """masked tokens (15 %), given all others of their window"""
    tokens_WT = windows.probe.tokens_GWT[0]
    hidden_WT = (np.random.default_rng(0).random(tokens_WT.shape) < MASKED) & ~windows.fixed_T
    read_WT = np.where(hidden_WT, windows.mask_token, tokens_WT)
    losses = []
    for start in range(0, len(tokens_WT), batch_size):
        rows = slice(start, start + batch_size)
        logits = forward(loaded, read_WT[rows], loaded.model).logits.float()
        losses.append(_loss(logits, tokens_WT[rows])[hidden_WT[rows]])
    return float(np.concatenate(losses).mean())


def head_task(name: str) -> str | None:
    """What the head of a class predicts; None: it has none that predicts tokens."""
    if name.endswith(("ForCausalLM", "LMHeadModel")):
        return NEXT_TOKEN
    return MASKED_TOKEN if name.endswith("ForMaskedLM") else None


def _loss(logits_WTV: Any, targets_WT: np.ndarray) -> np.ndarray:
    """Bits of every target."""
    targets = torch.as_tensor(targets_WT, dtype=torch.long, device=logits_WTV.device)
    chosen = logits_WTV.gather(-1, targets[..., None])[..., 0]
    return ((logits_WTV.logsumexp(-1) - chosen) / np.log(2)).cpu().numpy()


def check_vocabulary(loaded: PretrainedModel, windows: Windows) -> None:
    """Every token must have its embedding, where there is a table of them; CANINE has one for any
    code point.
    """
    try:
        rows = loaded.base.get_input_embeddings().weight.shape[0]
    except NotImplementedError:
        return
    largest = max(
        len(windows.counts_V) - 1, int(windows.probe.tokens_GWT.max()), windows.mask_token or 0
    )
    if largest >= rows:
        raise UserError(
            f"the tokenizer gives token {largest}, the model has {rows}: this tokenizer is not the model's"
        )


def max_positions(loaded: PretrainedModel) -> int | None:
    """How many a window may have at most; None: any number, or it is not known."""
    config, before = loaded.model.config, loaded.adapter.before
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and before:
        longest -= getattr(config, before) + 1
    elif longest is not None and (table := position_table(loaded.base)) is not None:
        longest -= table.padding_idx + 1
    return longest if longest is not None and longest > 0 else None  # some say -1 for any number


def position_table(base: Any) -> Any:
    """The table of positions where token 0 comes after that of padding, as in all models of
    RoBERTa's family.
    """
    table = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    return table if getattr(table, "padding_idx", None) is not None else None


def check_window(loaded: PretrainedModel, window: int, head: int) -> None:
    """No window may be longer than the model has positions, and a head that is kept must be
    there.
    """
    config, longest = loaded.model.config, max_positions(loaded)
    if longest is not None and longest < window:
        raise UserError(f"window is {window}; this model has {longest} positions")
    heads = config.num_attention_heads if loaded.adapter != UNKNOWN else head + 1
    if head >= heads:
        raise UserError(f"measure.projected_head is {head}; the model has {heads} heads, from 0 on")


def check_weights_differ(step: int, digest: str, others: dict[int, str]) -> None:
    """Two steps of a training have other weights: a hub may hold one file under several names."""
    for other, theirs in others.items():
        if other != step and theirs == digest:
            raise UserError(
                f"steps {min(step, other)} and {max(step, other)} hold the same weights (sha256 {digest[:12]}…), which "
                "no training does; leave the wrong one out of pretrained.revisions"
            )


def noise_floor(values: dict, again: dict) -> dict[str, float]:
    """By how much each quantity of the first batch moves when the model reads other numbers of
    windows at a time.
    """
    moved = {}
    for name, value in values[MEASURED].items():
        far = np.abs(
            np.asarray(value, np.float64)[:1, 0]
            - np.asarray(again[MEASURED][name], np.float64)[:1, 0]
        )
        # the first replicate is the value itself
        whole = far[..., 0] if quantities()[name].resampling else far
        moved[name] = float(np.nanmax(whole)) if np.isfinite(whole).any() else float("nan")
    return moved


def _difference(one: Any, other: Any) -> float:
    if one.shape != other.shape:
        return float("inf")
    one, other = one.detach().float(), other.detach().float()
    return float((one - other).abs().max() / other.abs().max())
