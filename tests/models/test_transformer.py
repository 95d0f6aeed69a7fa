"""The Transformer against an independent NumPy float64 twin: values, gradients, dependence, parameter counts."""

import dataclasses
import importlib
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.variants import expand
from models import masks, transformer
from models.config import ModelConfig
from tests.models import reference
from tests.models.cases import CONFIGS, SMALL, VOCAB, loss_of, make

every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


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


@pytest.mark.parametrize(
    "name", ["gpt2", "prefix", "window", "softmax_one", "sigmoid", "qk_norm", "centre_queries", "sink"]
)
def test_a_window_shorter_than_the_context(name):
    """Whatever comes later changes nothing; a prefix is five positions long here."""
    model, params, tokens_BT = make(CONFIGS[name])
    whole, short = jax.jit(model.apply)(params, tokens_BT)[0], jax.jit(model.apply)(params, tokens_BT[:, :5])[0]
    np.testing.assert_allclose(short, whole[:, :5], atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert", "rotary"])
def test_taps_give_the_gradient_at_every_layer(name):
    """One jax.grad against central differences of the NumPy twin, along a random direction per layer."""
    config = CONFIGS[name]
    model, params, tokens_BT = make(config)
    shape = (config.layers, *tokens_BT.shape, config.width)
    gradient_NBTD = jax.jit(jax.grad(loss_of(model, tokens_BT), argnums=1))(params, jnp.zeros(shape))
    assert gradient_NBTD.shape == shape
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    weights_V = np.cos(np.arange(VOCAB))

    def loss(taps_NTD):
        logits_TV = reference.forward(params, np.asarray(tokens_BT[0]), config, taps_NTD)[0]
        log_sum_T = np.log(np.exp(logits_TV).sum(-1, keepdims=True))
        return ((logits_TV - log_sum_T) @ weights_V).mean() / len(tokens_BT)

    for layer in range(config.layers):
        direction_NTD = np.zeros((shape[0], *shape[2:]))
        direction_NTD[layer] = np.random.default_rng(layer).normal(size=shape[2:])
        slope = (loss(1e-4 * direction_NTD) - loss(-1e-4 * direction_NTD)) / 2e-4
        found = np.sum(np.asarray(gradient_NBTD[:, 0], np.float64) * direction_NTD)
        np.testing.assert_allclose(found, slope, rtol=1e-3, atol=1e-6)


def influence(config):
    """Which input position (column) moves the logits of each position (row), by gradients."""
    model, params, _ = make(dataclasses.replace(config, tied=False))
    one_each = jnp.arange(config.context)[None]  # every position its own character, so that the table is the input

    def logit_sums_T(table_VD):
        return jnp.sum(jnp.sin(model.apply(params | {"tokens": table_VD}, one_each)[0][0]), axis=-1)

    slopes_TVD = jax.jit(jax.jacrev(logit_sums_T))(params["tokens"])
    return np.asarray(jnp.abs(slopes_TVD).sum(-1)[:, : config.context] > 0)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("mask", ["causal", "bidirectional"])
def test_what_each_position_depends_on(mask, positions, norm):
    config = dataclasses.replace(SMALL, mask=mask, positions=positions, norm=norm)
    square_TT = np.ones((config.context, config.context), bool)
    np.testing.assert_array_equal(influence(config), np.tril(square_TT) if mask == "causal" else square_TT)


PATHS = (
    *("prefix", "window", "leak", "softmax_one", "sigmoid", "qk_norm", "centre_queries", "sink"),
    *("rotary_leak_all", "rotary_prefix_sigmoid"),
)


@pytest.mark.parametrize(
    ("name", "layers"), [*((name, 2) for name in PATHS), *((name, n) for name in ("window", "leak") for n in (1, 3))]
)
def test_an_output_depends_on_what_a_path_of_that_many_steps_reaches(name, layers):
    config = dataclasses.replace(CONFIGS[name], layers=layers)

    def reached(start, steps):
        further = [reached(key, steps - 1) for key in reference.seen(start, config.context, config)] if steps else []
        return {start}.union(*further)

    expected_TT = np.zeros((config.context, config.context), bool)
    for query in range(config.context):
        expected_TT[query, list(reached(query, layers))] = True
    np.testing.assert_array_equal(influence(config), expected_TT)
    np.testing.assert_array_equal(masks.dependence(config), expected_TT)


def analytic_count(config: ModelConfig, vocab: int) -> int:
    width, hidden = config.width, config.expansion * config.width
    block = 3 * width * width + width * width + 2 * width * hidden + 2 * width
    if config.bias:
        block += 3 * width + width + hidden + width + 2 * width
    if config.qk_norm:
        block += 2 * (width // config.heads)
    if config.sink:
        block += 2 * width
    total = config.layers * block + vocab * width
    if config.positions == "learned":
        total += config.context * width
    if config.norm == "pre":
        total += width + width * config.bias
    return total + (0 if config.tied else width * vocab)


def count(config: ModelConfig, vocab: int) -> int:
    return transformer.count_parameters(
        jax.eval_shape(transformer.build(config, vocab, "float32").init, jax.random.key(0))
    )


@every_config
def test_parameter_count(config):
    assert count(config, VOCAB) == analytic_count(config, VOCAB)


def test_parameter_count_of_gpt2():
    gpt2 = ModelConfig(layers=12, width=768, heads=12, context=1024)
    assert count(gpt2, 50257) == 124_439_808  # as published for the smallest GPT-2


TRAINED = sorted(
    path.stem
    for path in (pathlib.Path(__file__).parents[2] / "experiments").glob("*.py")
    if "def get_config(" in path.read_text() and "untrained" not in path.stem
)


@pytest.mark.parametrize("name", TRAINED)
def test_parameter_count_of_every_experiment(name):
    for run in expand(importlib.import_module(f"experiments.{name}").get_config()).values():
        assert count(run.model, 206) == analytic_count(run.model, 206)
