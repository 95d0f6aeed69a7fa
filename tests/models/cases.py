"""Small configurations that cover every choice, and a model of each moved off its special initial values."""

import dataclasses

import jax
import jax.numpy as jnp

from models import transformer
from models.config import ModelConfig

VOCAB = 29
SMALL = ModelConfig(layers=3, width=24, heads=4, context=12)
CONFIGS = {
    "gpt2": SMALL,
    "one_layer": dataclasses.replace(SMALL, layers=1),
    "one_head": dataclasses.replace(SMALL, heads=1),
    "odd_width": dataclasses.replace(SMALL, width=21, heads=3, expansion=3),
    "no_bias": dataclasses.replace(SMALL, bias=False),
    "encoder": dataclasses.replace(SMALL, mask="bidirectional"),
    "post_norm": dataclasses.replace(SMALL, norm="post"),
    "rotary": dataclasses.replace(SMALL, positions="rotary"),
    "untied": dataclasses.replace(SMALL, tied=False),
    "bert": dataclasses.replace(SMALL, norm="post", mask="bidirectional", tied=False),
    "rotary_post_no_bias": dataclasses.replace(
        SMALL, norm="post", positions="rotary", bias=False, mask="bidirectional"
    ),
    "prefix": dataclasses.replace(SMALL, mask="prefix", prefix=5),
    "window": dataclasses.replace(SMALL, mask="window", window=3),
    "leak": dataclasses.replace(SMALL, mask="leak", leak=0.2),
    "softmax_one": dataclasses.replace(SMALL, attention="softmax_one"),
    "softmax_one_encoder": dataclasses.replace(SMALL, attention="softmax_one", mask="bidirectional"),
    "sigmoid": dataclasses.replace(SMALL, attention="sigmoid"),
    "sigmoid_encoder": dataclasses.replace(SMALL, attention="sigmoid", mask="bidirectional"),
    "qk_norm": dataclasses.replace(SMALL, qk_norm=True),
    "centre_queries": dataclasses.replace(SMALL, centre_queries=True),
    "sink": dataclasses.replace(SMALL, sink=True),
    "rotary_leak_all": dataclasses.replace(
        SMALL, mask="leak", leak=0.1, positions="rotary", qk_norm=True, centre_queries=True, sink=True
    ),
    "rotary_prefix_sigmoid": dataclasses.replace(
        SMALL, mask="prefix", prefix=4, positions="rotary", attention="sigmoid", qk_norm=True, centre_queries=True
    ),
}


def make(config: ModelConfig, dtype: str = "float32"):
    """A model, parameters whose biases are not zero and whose scales are not one, and tokens."""
    model = transformer.build(config, VOCAB, dtype)
    leaves, tree = jax.tree.flatten(jax.jit(model.init)(jax.random.key(0)))
    keys = jax.random.split(jax.random.key(1), len(leaves))
    leaves = [leaf + 0.2 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    tokens_BT = jax.random.randint(jax.random.key(2), (2, config.context), 0, VOCAB)
    return model, jax.tree.unflatten(tree, leaves), tokens_BT


def loss_of(model: transformer.Model, tokens_BT: jax.Array):
    """A loss of parameters and taps in which every logit has its own weight."""
    weights_V = jnp.cos(jnp.arange(VOCAB, dtype=jnp.float32))

    def loss(params, taps_NBTD=None):
        logits_BTV, _ = model.apply(params, tokens_BT, taps_NBTD)
        return jnp.mean(jax.nn.log_softmax(logits_BTV) @ weights_V)

    return loss
