"""Send arrays of a compiled JAX program to a function on the host, once per computation.

`jax.experimental.io_callback` stops a step with `jax.checkpoint`, and is dropped from the gradient
of a `lax.scan`; `jax.debug.callback` runs again where a backward pass recomputes. JAX leaves a
primitive with an effect in the forward pass, so this one carries the effect of the latter. The
effect is unordered, since ordered effects do not compile for several devices.
"""

import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

LOOPS = "control_flow.loops"  # the module of JAX that traces the body of a loop
LOOP = (
    "a recorder inside of jax.lax.scan counts each iteration as other sequences; if the iterations "
    "are layers, return them from the scan and add {name: layer} of the result"
)
PART = (
    "a pass was not recorded: a recorder inside of jax.{} sees a part of the arrays, and not which; "
    "call it outside, with the whole (batch, tokens, width)"
)

send_p = Primitive("anisoscope_send")
send_p.multiple_results = True


def send(receive: Callable[..., None], arrays: Any) -> None:
    """Call `receive(*arrays)` on the host when the program runs; warn where it cannot be."""
    if jax.sharding.get_abstract_mesh().manual_axes:
        warnings.warn(PART.format("shard_map or jax.pmap"), stacklevel=3)
        return
    frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
    if any(name.endswith(LOOPS) for name in frames):
        warnings.warn(LOOP, stacklevel=3)
    leaves, tree = jax.tree.flatten(arrays)
    send_p.bind(*map(jax.lax.stop_gradient, leaves), receive=receive, tree=tree)


def _send(*leaves: Any, receive: Callable[..., None], tree: Any) -> list[Any]:
    jax.debug.callback(receive, *jax.tree.unflatten(tree, leaves))
    return []


def _leave_out(*_: Any, **__: Any) -> tuple[list[Any], list[Any]]:
    warnings.warn(PART.format("vmap"), stacklevel=3)
    return [], []


EFFECTS = jax.make_jaxpr(lambda: jax.debug.callback(int))().effects
send_p.def_impl(_send)
send_p.def_effectful_abstract_eval(lambda *_, **__: ([], EFFECTS))
batching.primitive_batchers[send_p] = _leave_out
mlir.register_lowering(send_p, mlir.lower_fun(_send, multiple_results=True))
