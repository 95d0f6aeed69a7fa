"""Inside of a block: what attention and the feed-forward layer add to the residual stream, and the
values.

Letters: Z inputs of a batch: its windows, and shuffled ones.
"""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from anisoscope.sources.hf.adapters import Adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading import extract
from anisoscope.sources.hf.reading.guards import CLOSE
from anisoscope.utils.errors import UserError

ADDED = ("attention_out", "mlp_out")
VALUES = "values"


def check_hook_points(adapter: Adapter, name: str, hook_points: tuple[str, ...]) -> None:
    """UserError where nothing is known of the inside of the blocks of a class, whose name this
    is.
    """
    if hook_points and adapter.adds is None:
        unknown = "sources/hf/adapters.py does not say where"
        why = "maps change from stage to stage" if adapter.maps else unknown
        raise UserError(
            f"measure.hook_points={','.join(hook_points)}: {name} has no such clouds ({why}); leave it out"
        )


@contextlib.contextmanager
def listen_inside(loaded: PretrainedModel, on_added: Any) -> Iterator[None]:
    """Tells on_added(hook_point, n, x_BTD) of what block n, from 0, adds to the stream."""
    n, shape, calls, adds = -1, (), itertools.count(), loaded.adapter.adds
    times = getattr(loaded.model.config, adds.times) if adds.times else 1

    def before(_: Any, args: tuple, given: dict) -> None:
        nonlocal n, shape, calls
        n, calls = n + 1, itertools.count()
        shape = (args[0] if args else given["hidden_states"]).shape

    def hook(hook_points: list[str]) -> Any:
        def after(_: Any, args: tuple, output: Any) -> None:
            hook_point = hook_points[next(calls) % len(hook_points)]
            on_added(
                hook_point,
                n,
                (output[0] if isinstance(output, tuple) else output).reshape(shape) * times,
            )

        return after

    with contextlib.ExitStack() as hooks:
        for block in loaded.block_modules:
            hooks.enter_context(block.register_forward_pre_hook(before, with_kwargs=True))
            for path in {adds.attention, adds.mlp}:
                hook_points = [
                    name
                    for name, its in zip(ADDED, (adds.attention, adds.mlp), strict=True)
                    if its == path
                ]
                hooks.enter_context(
                    block.get_submodule(path).register_forward_hook(hook(hook_points))
                )
        yield


def read_hook_point(
    loaded: PretrainedModel,
    tokens_ZWT: np.ndarray,
    batch_size: int,
    hook_point: str,
    plain: bool = False,
) -> np.ndarray:
    """(Z, N, W, T, D) of Z inputs, in float32: of block n its `hook_point`; `plain` as in
    `Listener`.
    """
    (inputs, windows), blocks = tokens_ZWT.shape[:2], loaded.blocks
    caught = extract.LayerArrays(loaded, inputs, windows)
    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        place = z, slice(start, start + batch_size)

        def on_added(name: str, n: int, x_BTD: Any, place: tuple[int, slice] = place) -> None:
            if name == hook_point:
                caught.put(hook_point, n, blocks, place, x_BTD)

        def on_call(n: int, call: Any, place: tuple[int, slice] = place) -> None:
            if hook_point == VALUES:
                caught.put(hook_point, n, blocks, place, call.v_BHTK.transpose(1, 2).flatten(2))

        with (
            extract.Listener(loaded, on_call=on_call, plain=plain) as counts,
            listen_inside(loaded, on_added),
        ):
            extract.forward(loaded, tokens_ZWT[place])
        extract.check_counts(loaded, counts, heads=hook_point == VALUES)
    return caught.made[hook_point]


def check_sum(loaded: PretrainedModel, tokens_T: np.ndarray, most: float | None = None) -> str:
    """That the stream and what a block adds to it are its output, through its norms if it has any
    after these.

    `most` is the largest coordinate after a block, where it is clamped. In words; UserError where
    it is not so.
    """
    added: dict[tuple[str, int], Any] = {}
    blocks: list[Any] = []  # in the order of their calls: one module may be many
    hooks = [
        one.register_forward_pre_hook(lambda block, args: blocks.append(block))
        for one in loaded.block_modules
    ]
    # a block may add in place
    with listen_inside(
        loaded, lambda hook_point, n, x_BTD: added.update({(hook_point, n): x_BTD.clone()})
    ):
        streams, _ = extract.residual_stream(loaded, tokens_T[None])
    furthest = dict.fromkeys(_ways(loaded), 0.0)
    for hook in hooks:
        hook.remove()
    for n, block in enumerate(blocks):
        one, other = (added.get((hook_point, n)) for hook_point in ADDED)
        if one is None or other is None:
            name = type(loaded.model).__name__
            raise UserError(
                f"{name}: block {n + 1} was not seen to add to the stream; leave measure.hook_points out"
            )
        for words, way in _ways(loaded).items():
            sums = way(block, streams[n], one, other).detach()
            sums = sums if most is None else sums.clamp(-most, most)
            apart, by = ((streams[n + 1] - x).abs().float() for x in (sums, streams[n]))
            far = float(apart.max() / streams[n + 1].abs().max())
            # a massive coordinate hides all others: what is added is looked at by itself
            furthest[words] = max(furthest[words], far, float(apart.median() / by.median()))
    words = min(furthest, key=furthest.get)
    if not furthest[words] <= CLOSE[loaded.about["computed_in"]]:
        raise UserError(
            f"{type(loaded.model).__name__}: {words} is not the output of a block (they differ by a share of "
            f"{furthest[words]:.2g}): leave measure.hook_points out"
        )
    return f"{words} is the output of every block to {furthest[words]:.0e}"


def _ways(loaded: PretrainedModel) -> dict[str, Any]:
    ways = {"stream + attention_out + mlp_out": lambda block, x, one, other: x + one + other}
    if norms := loaded.adapter.adds.norms:

        def after(block: Any, x: Any, one: Any, other: Any) -> Any:
            first, second = map(block.get_submodule, norms)
            return second(first(x + one) + other)

        ways["norm(norm(stream + attention_out) + mlp_out)"] = after
    return ways
