"""The Transformer against an independent NumPy float64 twin, and the properties every caller relies on."""

import dataclasses
import importlib
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import models
from experiments.base import ModelConfig, expand
from tests.models import reference

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
}
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def make(config, seed=0, dtype="float32", scale=1.0):
    """A model, its parameters moved off their special initial values (zero biases, unit scales), and tokens."""
    model = models.build(config, VOCAB, dtype)
    params = jax.jit(model.init)(jax.random.key(seed))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    leaves = [leaf + scale * 0.2 * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    tokens_BT = jax.random.randint(jax.random.key(seed + 2), (2, config.context), 0, VOCAB)
    return model, jax.tree.unflatten(tree, leaves), tokens_BT


def loss_of(model, tokens_BT):
    weights = jnp.cos(jnp.arange(VOCAB, dtype=jnp.float32))

    def loss(params, taps_NBTD=None):
        logits_BTV, _ = model.apply(params, tokens_BT, taps_NBTD)
        return jnp.mean(jax.nn.log_softmax(logits_BTV) @ weights)

    return loss


def assert_trees_close(left, right, rtol, atol=0.0):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), left, right)


@every_config
def test_agrees_with_the_numpy_twin(config):
    model, params, tokens_BT = make(config)
    logits_BTV, activations = jax.jit(model.apply)(params, tokens_BT)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((logits_BTV, activations)))
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for row, tokens_T in enumerate(np.asarray(tokens_BT)):
        logits_TV, resid_NTD, q_NTHK, k_NTHK = reference.forward(params, tokens_T, config)
        np.testing.assert_allclose(logits_BTV[row], logits_TV, atol=1e-4)
        np.testing.assert_allclose(activations.resid_NBTD[:, row], resid_NTD, atol=1e-4)
        np.testing.assert_allclose(activations.q_NBTHK[:, row], q_NTHK, atol=1e-4)
        np.testing.assert_allclose(activations.k_NBTHK[:, row], k_NTHK, atol=1e-4)


def test_a_window_shorter_than_the_context():
    model, params, tokens_BT = make(SMALL)
    whole, short = model.apply(params, tokens_BT)[0], model.apply(params, tokens_BT[:, :5])[0]
    np.testing.assert_allclose(short, whole[:, :5], atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("mask", ["causal", "bidirectional"])
def test_what_each_position_depends_on(mask, positions, norm):
    """Gradients of the logits at position t with respect to the embeddings of position s."""
    config = dataclasses.replace(SMALL, mask=mask, positions=positions, norm=norm, tied=False)
    model, params, _ = make(config)
    one_each = jnp.arange(config.context)[None]  # every position its own character, so that the table is the input

    def logit_sums_T(table_VD):
        return jnp.sum(jnp.sin(model.apply(params | {"tokens": table_VD}, one_each)[0][0]), axis=-1)

    influence_TT = jnp.abs(jax.jacrev(logit_sums_T)(params["tokens"])).sum(-1)[:, : config.context]
    seen_TT = np.tril(np.ones((config.context, config.context), bool)) if mask == "causal" else True
    np.testing.assert_array_equal(np.asarray(influence_TT) > 0, np.broadcast_to(seen_TT, influence_TT.shape))


def analytic_count(config: ModelConfig, vocab: int) -> int:
    width, hidden = config.width, config.expansion * config.width
    block = 3 * width * width + width * width + 2 * width * hidden + 2 * width
    if config.bias:
        block += 3 * width + width + hidden + width + 2 * width
    total = config.layers * block + vocab * width
    if config.positions == "learned":
        total += config.context * width
    if config.norm == "pre":
        total += width + width * config.bias
    return total + (0 if config.tied else width * vocab)


def count(config: ModelConfig, vocab: int) -> int:
    return models.count_parameters(jax.eval_shape(models.build(config, vocab, "float32").init, jax.random.key(0)))


@every_config
def test_parameter_count(config):
    assert count(config, VOCAB) == analytic_count(config, VOCAB)


def test_parameter_count_of_gpt2():
    gpt2 = ModelConfig(layers=12, width=768, heads=12, context=1024)
    assert count(gpt2, 50257) == 124_439_808  # as published for the smallest GPT-2


EXPERIMENTS = sorted(
    path.stem for path in (pathlib.Path(__file__).parents[2] / "experiments").glob("*.py") if path.stem[0] != "_"
)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "base"])
def test_parameter_count_of_every_experiment(name):
    for run in expand(importlib.import_module(f"experiments.{name}").get_config()).values():
        assert count(run.model, 206) == analytic_count(run.model, 206)
