"""Cut windows of the corpus on the device: a pure function of (seed, step, example index)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, UInt8


def starts(
    seed: int | Array,
    step: int | Array,
    examples_B: Int32[Array, " B"],
    num_characters: int,
    length: int,
) -> Int32[Array, " B"]:
    """Draw the first character of each window, uniformly; each example index has its own key."""
    key = jax.random.fold_in(jax.random.key(seed), step)

    def start(example: Array) -> Array:
        return jax.random.randint(
            jax.random.fold_in(key, example), (), 0, num_characters - length + 1, jnp.int32
        )

    return jax.vmap(start)(examples_B)


def crop(
    corpus_N: UInt8[Array, " N"], starts_B: Int32[Array, " B"], length: int
) -> Int32[Array, "B T"]:
    """Cut the windows of T = `length` token ids that begin at `starts_B`."""
    windows_BT = jax.vmap(lambda start: jax.lax.dynamic_slice(corpus_N, (start,), (length,)))(
        starts_B
    )
    return windows_BT.astype(jnp.int32)
