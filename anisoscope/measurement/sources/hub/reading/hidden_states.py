"""Hidden states as transformers reports them, the definition of the papers, beside the outputs of blocks."""

from typing import Any

import numpy as np

from anisoscope.measurement.sources.hub.load import Loaded
from anisoscope.measurement.sources.hub.reading.extract import check_counts, forward, listening
from anisoscope.utils.errors import UserError

SAME = 1e-3  # relative to the largest number: float16 may round in another order


def reported(loaded: Loaded, tokens_T: np.ndarray) -> str:
    """Which of the model's `hidden_states` are outputs of blocks, in words; UserError where they are not alike."""
    streams: dict[int, Any] = {}
    with listening(loaded, lambda n, x_BTD: streams.update({n: x_BTD}), lambda n, call: None) as counts:
        output = forward(loaded, tokens_T[None], output_hidden_states=True)
    check_counts(loaded, counts, heads=False)
    states = getattr(output, "hidden_states", None) or ()
    if [state.shape for state in states] != [streams[n].shape for n in range(loaded.blocks + 1)]:
        raise UserError(
            f"{type(loaded.model).__name__} reports {len(states)} hidden states, not one like the output of each of "
            f"{loaded.blocks} blocks and their input; --config.hidden_states=blocks reads the blocks themselves"
        )
    others = [str(n) for n, state in enumerate(states) if not _same(state, streams[n])]
    words = f"all outputs of blocks but that of layer {', '.join(others)}" if others else "all outputs of blocks"
    last = "the last hidden state" if _same(states[-1], output.last_hidden_state) else "not the last hidden state"
    return f"hidden states as transformers reports them: {words}; the last one is {last}"


def _same(one: Any, other: Any) -> bool:
    return float((one.float() - other.float()).abs().max()) <= SAME * float(other.float().abs().max())
