"""A JAX primitive that hands arrays to the host once per computation.

`jax.debug.callback` inside `jax.checkpoint` runs in the forward pass, and again where the backward
pass recomputes it. A separate primitive is not recomputed: by default JAX leaves a primitive with
an effect in the forward pass.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

MAPPED = (
    "a recorder inside of jax.vmap does not know whether the mapped axis holds sequences; "
    "call it outside, with the whole (batch, tokens, width)"
)
send_p = Primitive("anisoscope_send")
send_p.multiple_results = True


def send(receive: Callable[..., None], *arrays: Any) -> None:
    """Call `receive` with the values of these arrays, in order, also from a compiled program."""
    leaves, tree = jax.tree.flatten(arrays)
    send_p.bind(*leaves, receive=receive, tree=tree)


def _send(*leaves: Any, receive: Callable[..., None], tree: Any) -> list[Any]:
    jax.debug.callback(receive, *jax.tree.unflatten(tree, leaves), ordered=True)
    return []


def _refuse_vmap(*_: Any, **__: Any) -> Any:
    raise ValueError(MAPPED)


EFFECTS = jax.make_jaxpr(lambda: jax.debug.callback(int, ordered=True))().effects
send_p.def_impl(_send)
send_p.def_effectful_abstract_eval(lambda *_, **__: ([], EFFECTS))
ad.primitive_jvps[send_p] = lambda primals, _, **params: (send_p.bind(*primals, **params), [])
batching.primitive_batchers[send_p] = _refuse_vmap
mlir.register_lowering(send_p, mlir.lower_fun(_send, multiple_results=True))
