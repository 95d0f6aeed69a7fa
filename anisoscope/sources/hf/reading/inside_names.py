"""Read hook points inside blocks: the outputs of attention and feed-forward layer, and the values.

Letters: Z inputs of a batch: its windows, and shuffled ones.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from anisoscope.sources.hf.adapters import Adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading import extract
from anisoscope.sources.hf.reading.guards import CLOSE
from anisoscope.utils.errors import UserError

ADDED = ("attention_out", "mlp_out")
VALUES = "values"
LEAVE = "leave measure.hook_points out"
PLAIN = "stream + attention_out + mlp_out"
NORMED = "norm(norm(stream + attention_out) + mlp_out)"


def check_hook_points(adapter: Adapter, name: str, hook_points: tuple[str, ...]) -> None:
    """Raise UserError where the modules inside the blocks of a class are unknown."""
    if hook_points and adapter.adds is None:
        unknown = "sources/hf/adapters.py does not say where"
        reason = "maps change from stage to stage" if adapter.maps else unknown
        raise UserError(
            f"measure.hook_points={','.join(hook_points)}: {name} has none ({reason}); {LEAVE}"
        )


class AddedListener:
    """A context that calls on_added(hook_point, block, x_BTD) with what blocks add."""

    def __init__(self, loaded: PretrainedModel, on_added: Callable[[str, int, Any], None]):
        self.loaded, self.on_added, self.hooks = loaded, on_added, contextlib.ExitStack()
        self.blocks: list[Any] = []  # in the order of their calls; one module may serve many blocks
        self.shape: Any = None
        self.calls = 0  # calls in this block of a module that returns both outputs
        times = loaded.adapter.adds.times
        self.times = getattr(loaded.model.config, times) if times else 1

    def __enter__(self) -> "AddedListener":
        paths = self.loaded.adapter.adds.attention, self.loaded.adapter.adds.mlp
        for block in self.loaded.block_modules:
            hook = block.register_forward_pre_hook(self._before, with_kwargs=True)
            self.hooks.enter_context(hook)
            for path in set(paths):
                names = [name for name, own in zip(ADDED, paths, strict=True) if own == path]
                after = functools.partial(self._after, names)
                self.hooks.enter_context(block.get_submodule(path).register_forward_hook(after))
        return self

    def __exit__(self, *_: object) -> None:
        self.hooks.close()

    def _before(self, block: Any, args: tuple, kwargs: dict) -> None:
        self.blocks.append(block)
        self.shape, self.calls = (args[0] if args else kwargs["hidden_states"]).shape, 0

    def _after(self, names: list[str], module: Any, args: tuple, output: Any) -> None:
        name = names[self.calls % len(names)]
        if len(names) > 1:
            self.calls += 1
        x_BTD = extract.first_output(output).reshape(self.shape) * self.times
        self.on_added(name, len(self.blocks) - 1, x_BTD)


def read_hook_point(
    loaded: PretrainedModel, tokens_ZWT: np.ndarray, batch_size: int, name: str, plain: bool = False
) -> np.ndarray:
    """Read a hook point of every block, (Z, N, W, T, D) in float32; `plain` as in `Listener`."""
    arrays = extract.LayerArrays(loaded, name, loaded.blocks, tokens_ZWT)
    for batch in extract.batches(tokens_ZWT, batch_size):
        put = functools.partial(arrays.put, batch)
        if name == VALUES:
            on_call = functools.partial(_put_values, put)
            with extract.Listener(loaded, on_call=on_call, plain=plain):
                extract.forward(loaded, tokens_ZWT[batch])
            continue
        on_added = functools.partial(_put_named, put, name)
        with extract.Listener(loaded, plain=plain), AddedListener(loaded, on_added):
            extract.forward(loaded, tokens_ZWT[batch])
    return arrays.values


def _put_values(put: Callable[[int, Any], None], n: int, call: extract.Call) -> None:
    put(n, call.v_BHTK.transpose(1, 2).flatten(2))


def _put_named(put: Callable[[int, Any], None], hook_point: str, name: str, n: int, x: Any) -> None:
    if name == hook_point:
        put(n, x)


def check_sum(loaded: PretrainedModel, tokens_T: np.ndarray, most: float | None = None) -> str:
    """Check that the stream plus what a block adds equals the output of the block.

    Returns:
        How closely, in words.

    Raises:
        UserError: the sum differs from the output, with and without the block's norms.
    """
    name, added = type(loaded.model).__name__, {}
    # cloned, since a block may add in place
    listener = AddedListener(loaded, lambda point, n, x: added.update({(point, n): x.clone()}))
    with listener:
        streams, _ = extract.residual_stream(loaded, tokens_T[None])
    norms = loaded.adapter.adds.norms
    furthest = dict.fromkeys((PLAIN, NORMED) if norms else (PLAIN,), 0.0)
    for n, block in enumerate(listener.blocks):
        attention, mlp = (added.get((point, n)) for point in ADDED)
        if attention is None or mlp is None:
            raise UserError(f"{name}: block {n + 1} adds nothing to the stream; {LEAVE}")
        sums = {PLAIN: streams[n] + attention + mlp}
        if norms:
            first, second = map(block.get_submodule, norms)
            sums[NORMED] = second(first(streams[n] + attention) + mlp)
        for words, x in sums.items():
            x = x.detach() if most is None else x.detach().clamp(-most, most)
            error, step = ((streams[n + 1] - y).abs().float() for y in (x, streams[n]))
            # a massive coordinate hides all others: compare what is added separately
            far = float(error.max() / streams[n + 1].abs().max())
            furthest[words] = max(furthest[words], far, float(error.median() / step.median()))
    words = min(furthest, key=furthest.get)
    if not furthest[words] <= CLOSE[loaded.about["computed_in"]]:
        raise UserError(
            f"{name}: {words} differs from the output of a block by a share of {furthest[words]:.2g}; "
            f"{LEAVE}"
        )
    return f"{words} is the output of every block to {furthest[words]:.0e}"
