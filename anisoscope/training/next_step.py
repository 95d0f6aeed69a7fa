"""The update of a single step: what the optimizer does to a checkpoint with the batch that comes next."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run import RunConfig, seeds
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training import optimizer, step
from anisoscope.training.checkpoint import Beside, Checkpoints
from anisoscope.training.seed_runs import items


class NextStep:
    """One program for all checkpoints of a run; it computes as the training did."""

    def __init__(self, config: RunConfig, corpus: Corpus, store: Checkpoints | Beside):
        (weights, data), *_ = seeds(config.train)
        model, update = transformer.build(config.model, corpus.vocab_size), optimizer.make_optimizer(config.train)
        one_step = step.make_step(model.apply, update, config, corpus.mask_token)
        self.store, self.data = store, jnp.uint32(data)
        self.tokens_N = jnp.asarray(corpus.train)
        self.abstract = jax.eval_shape(lambda: step.init_state(model.init(jax.random.key(weights)), update))

        def moved(state: step.State, seed: jax.Array, tokens_N: jax.Array) -> Any:
            return jax.tree.map(jnp.subtract, one_step(state, seed, tokens_N)[0].params, state.params)

        self.moved = jax.jit(moved)

    def change(self, at: int) -> Any:
        """What the next update adds to the parameters of this checkpoint, in NumPy."""
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=device), self.abstract)
        params, train = self.store.restore(at, *items(abstract))
        state = step.State(params, train["opt_state"], train["step"])
        return jax.tree.map(np.asarray, self.moved(state, self.data, self.tokens_N))
