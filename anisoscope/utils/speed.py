"""How fast this machine is, and times in words."""

import time

import jax
import jax.numpy as jnp


def speed() -> float:
    """Operations per second of a large product on this machine, in a quarter of a second."""
    n = 1024
    product, x = jax.jit(jnp.matmul), jnp.ones((n, n))
    product(x, x).block_until_ready()
    taken, until = [], time.perf_counter() + 0.25
    while time.perf_counter() < until:
        began = time.perf_counter()
        product(x, x).block_until_ready()
        taken.append(time.perf_counter() - began)
    return 2 * n**3 / min(taken)  # what others leave of the machine changes from one to the next


def duration(taken: float) -> str:
    """In words, as exact as a rough number may be."""
    for unit, words in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if taken >= 2 * unit:
            return f"{taken / unit:.0f} {words}"
    whole = max(round(taken), 1)
    return f"{whole} second{'s' * (whole > 1)}"
