"""Which positions attention lets a query see, and what of the input can reach an output through several layers."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from models.config import ModelConfig


def visible_keys(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Which key (column) each query (row) sees, over the first `time` <= context positions; itself always.

    causal: keys up to the query. bidirectional: all. prefix: causal, and the first `prefix` keys are seen by all.
    window: the last `window` keys, the query's own among them. leak: causal, and the fraction `leak` of the pairs
    (query, later key) of the context, the same in every layer, head and window. A larger leak holds a smaller one of
    the same seed; 0 is causal and 1 is bidirectional.
    """
    all_TT = jnp.ones((time, time), bool)
    causal_TT = jnp.tril(all_TT)
    if config.mask == "bidirectional":
        return all_TT
    if config.mask == "prefix":
        return causal_TT | (jnp.arange(time) < config.prefix)[None]
    if config.mask == "window":
        return causal_TT & jnp.triu(all_TT, 1 - config.window)
    if config.mask == "leak":
        return causal_TT | jnp.asarray(_leaked(config)[:time, :time])
    return causal_TT


def _leaked(config: ModelConfig) -> np.ndarray:
    """`leak` of the pairs above the diagonal: the first ones of a shuffle that only seed and context decide."""
    queries_P, keys_P = np.triu_indices(config.context, 1)
    chosen = np.random.default_rng(config.leak_seed).permutation(queries_P.size)[: round(config.leak * queries_P.size)]
    leaked_TT = np.zeros((config.context, config.context), bool)
    leaked_TT[queries_P[chosen], keys_P[chosen]] = True
    return leaked_TT


def dependence(config: ModelConfig) -> Bool[np.ndarray, "T T"]:
    """Which input position (column) the output at each position (row) can depend on.

    In every block a query reads what its keys have gathered in the blocks before: there must be a path of at most
    `layers` steps, each from a query to a key that it sees, a non-zero entry in that power of the visibility matrix.
    """
    with jax.ensure_compile_time_eval():  # also while a training step is being traced
        visible_TT = np.asarray(visible_keys(config, config.context))
    reached_TT = visible_TT
    for _ in range(config.layers - 1):
        further_TT = reached_TT.astype(np.float32) @ visible_TT.astype(np.float32) > 0
        if (further_TT == reached_TT).all():
            break
        reached_TT = further_TT
    return reached_TT
