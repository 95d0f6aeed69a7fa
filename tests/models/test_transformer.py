"""The Transformer against a float64 twin: values, gradients, dependence, parameters."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks, transformer
from anisoscope.models.attention_block import ATTENTIONS
from anisoscope.models.layers import NORM_PLACES, POSITIONS
from anisoscope.models.masks import MASKS
from tests.models import reference_transformer
from tests.models.cases import CONFIGS, SMALL, VOCAB, loss_of, made

every_case = pytest.mark.parametrize("name", CONFIGS)


def test_the_cases_cover_every_pair_of_choices():
    """But a sink without softmax, which is refused. A new kind goes into the cases too."""
    kinds = {
        "mask": MASKS,
        "attention": ATTENTIONS,
        "position_encoding": POSITIONS,
        "norm": NORM_PLACES,
    }
    kinds |= dict.fromkeys(("sink", "qk_norm", "center_queries", "tied", "bias"), (False, True))
    found = [{(kind, getattr(config, kind)) for kind in kinds} for config in CONFIGS.values()]
    for (one, firsts), (other, seconds) in itertools.combinations(kinds.items(), 2):
        for pair in itertools.product(firsts, seconds):
            refused = (
                (one, other) == ("attention", "sink") and pair[1] and not ATTENTIONS[pair[0]].sink
            )
            assert any({(one, pair[0]), (other, pair[1])} <= case for case in found) != refused, (
                one,
                other,
                pair,
            )


@every_case
def test_agrees_with_the_numpy_twin(name):
    config, _, params, tokens_BT, logits_BTV, activations = made(name)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves((logits_BTV, activations)))
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for row in (0, 1):
        logits_TV, resid_NTD, q_NTHK, k_NTHK = reference_transformer.forward(
            params, np.asarray(tokens_BT[row]), config
        )
        np.testing.assert_allclose(logits_BTV[row], logits_TV, atol=1e-4)
        np.testing.assert_allclose(activations.resid_LBTD[:, row], resid_NTD, atol=1e-4)
        np.testing.assert_allclose(activations.q_NBTHK[:, row], q_NTHK, atol=1e-4)
        np.testing.assert_allclose(activations.k_NBTHK[:, row], k_NTHK, atol=1e-4)


@pytest.mark.parametrize("name", ["prefix_sigmoid", "window_softmax_one"])
def test_a_window_shorter_than_the_context(name):
    """Whatever comes later changes nothing; a prefix is five positions long here."""
    case = made(name)
    short, _ = jax.jit(case.model.apply)(case.params, case.tokens_BT[:, :5])
    np.testing.assert_allclose(short, case.logits_BTV[:, :5], atol=1e-5)


def test_taps_give_the_gradient_at_every_layer():
    """One jax.grad against central differences of the twin, in a direction per layer."""
    case = made("leak_softmax")
    config, tokens_BT = case.config, case.tokens_BT[:2]
    shape = (config.layers + 1, *tokens_BT.shape, config.width)
    gradient = jax.jit(jax.grad(loss_of(case.model, tokens_BT), argnums=1))
    gradient_NBTD = np.asarray(gradient(case.params, jnp.zeros(shape)), np.float64)
    assert gradient_NBTD.shape == shape
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), case.params)
    weights_V = np.cos(np.arange(VOCAB))

    def loss(taps_NTD):
        logits_TV = reference_transformer.forward(
            params, np.asarray(tokens_BT[0]), config, taps_NTD
        )[0]
        log_sum_T = np.log(np.exp(logits_TV).sum(-1, keepdims=True))
        return ((logits_TV - log_sum_T) @ weights_V).mean() / len(tokens_BT)

    for layer in range(config.layers + 1):
        direction_NTD = np.zeros((shape[0], *shape[2:]))
        direction_NTD[layer] = np.random.default_rng(layer).normal(size=shape[2:])
        slope = (loss(1e-4 * direction_NTD) - loss(-1e-4 * direction_NTD)) / 2e-4
        np.testing.assert_allclose(
            np.sum(gradient_NBTD[:, 0] * direction_NTD), slope, rtol=1e-3, atol=1e-6
        )


def reached(config):
    """Mark the positions (columns) that a path of `layers` steps leads to from each row."""
    seen = [
        reference_transformer.seen(query, config.context, config) for query in range(config.context)
    ]

    def further(start, steps):
        return (
            {start}.union(*(further(key, steps - 1) for key in seen[start])) if steps else {start}
        )

    found = [further(query, config.layers) for query in range(config.context)]
    return np.array([[key in keys for key in range(config.context)] for keys in found])


@every_case
def test_an_output_depends_on_what_a_path_of_that_many_steps_reaches(name):
    """Another character moves the logits of those positions, to the bit, and no others."""
    case = made(name)
    moved_TT = (case.logits_BTV[1:] != case.logits_BTV[0]).any(axis=-1).T
    np.testing.assert_array_equal(moved_TT, reached(case.config))
    np.testing.assert_array_equal(masks.dependence(case.config), reached(case.config))


def test_parameter_count_of_gpt2():
    gpt2 = ModelConfig(layers=12, width=768, heads=12, context=1024)
    model = transformer.build(gpt2, 50257, "float32")
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    # as published for the smallest GPT-2
    assert transformer.count_parameters(shapes) == 124_439_808


def test_a_first_token_that_is_always_the_same_is_mask_whatever_stands_there():
    small = dataclasses.replace(SMALL, layers=1)
    config = dataclasses.replace(small, same_first=True)
    plain, same = (transformer.build(one, 7) for one in (small, config))
    params, tokens_BT = plain.init(jax.random.key(0)), jnp.array([[0, 1, 2], [3, 1, 2]])
    logits_BTV, seen = same.apply(params, tokens_BT)
    np.testing.assert_array_equal(*logits_BTV)
    np.testing.assert_array_equal(*seen.resid_LBTD[:, :, 0].swapaxes(0, 1))
    expected, _ = plain.apply(params, tokens_BT.at[:, 0].set(6))
    np.testing.assert_array_equal(logits_BTV, expected)
    assert jax.tree.map(jnp.shape, same.init(jax.random.key(0))) == jax.tree.map(jnp.shape, params)
