"""Small configurations that cover every choice and every pair of choices, and a model of each,
computed once.

Every test of a case asks the same program: a batch in which row j + 1 is row 0 with another
character at position j.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import transformer

VOCAB = 29
SMALL = ModelConfig(layers=3, width=24, heads=4, context=12)
OWN = {"prefix": {"prefix": 5}, "window": {"window": 3}, "leak": {"leak": 0.2}}
SHAPES = {
    "small": {},
    "one_layer": {"layers": 1},
    "one_head": {"heads": 1},
    "odd": {"width": 21, "heads": 3, "expansion": 3},
}
FLAGS = {
    **{name: {name: True} for name in ("sink", "qk_norm", "center_queries")},
    **{"untied": {"tied": False}, "no_bias": {"bias": False}},
}


def configuration(line: str) -> ModelConfig:
    mask, attention, positions, norm, shape, *flags = line.split()
    changes = {"mask": mask, "attention": attention, "position_encoding": positions, "norm": norm}
    for more in (OWN.get(mask, {}), SHAPES[shape], *(FLAGS[flag] for flag in flags)):
        changes |= more
    return dataclasses.replace(SMALL, **changes)


LINES = """
causal softmax rotary post one_layer sink center_queries no_bias
causal softmax_one rotary pre small untied no_bias
causal sigmoid learned post one_layer qk_norm center_queries untied no_bias
bidirectional softmax rotary pre one_head sink center_queries no_bias
bidirectional softmax_one rotary post small qk_norm center_queries untied no_bias
bidirectional sigmoid learned post odd qk_norm
prefix softmax learned pre odd sink qk_norm center_queries untied
prefix softmax_one rotary pre one_head no_bias
prefix sigmoid learned post odd center_queries untied
window softmax rotary post one_layer sink qk_norm
window softmax_one learned pre odd no_bias
window sigmoid rotary pre one_head center_queries untied no_bias
leak softmax rotary post one_head sink no_bias
leak softmax_one learned pre one_layer untied
leak sigmoid learned pre small qk_norm center_queries untied no_bias
"""
CONFIGS = {
    "gpt2": SMALL,
    "bert": configuration("bidirectional softmax learned post small untied"),
    **{
        f"{config.mask}_{config.attention}": config
        for config in map(configuration, LINES.strip().splitlines())
    },
}


class Case(NamedTuple):
    config: ModelConfig
    model: transformer.Model
    params: transformer.Params  # biases that are not zero, scales that are not one
    tokens_BT: jax.Array  # row j + 1 differs from row 0 at position j alone
    logits_BTV: np.ndarray
    activations: transformer.Activations


def parameters(model: transformer.Model) -> transformer.Params:
    """0.2 N(0, 1), and 1 + 0.2 N(0, 1) for the scales of LayerNorm."""
    rng = np.random.default_rng(0)

    def draw(path: tuple, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        center = 1.0 if path[-1].key == "scale" else 0.0
        return jnp.asarray(center + 0.2 * rng.normal(size=leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(model.init, jax.random.key(0)))


@functools.cache
def made(name: str) -> Case:
    config = CONFIGS[name]
    model = transformer.build(config, VOCAB, "float32")
    params, first_T = parameters(model), np.random.default_rng(1).integers(0, VOCAB, config.context)
    tokens_BT = (first_T + np.eye(config.context + 1, config.context, -1, dtype=int)) % VOCAB
    tokens_BT = jnp.asarray(tokens_BT, jnp.int32)
    return Case(
        config, model, params, tokens_BT, *jax.device_get(jax.jit(model.apply)(params, tokens_BT))
    )


def loss_of(model: transformer.Model, tokens_BT: jax.Array):
    """A loss of parameters and taps in which every logit has its own weight."""
    weights_V = jnp.cos(jnp.arange(VOCAB, dtype=jnp.float32))

    def loss(params, taps_LBTD=None):
        logits_BTV, _ = model.apply(params, tokens_BT, taps_LBTD)
        return jnp.mean(jax.nn.log_softmax(logits_BTV) @ weights_V)

    return loss
