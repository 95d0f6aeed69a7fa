"""One block alone against NumPy in float64, its initial values, and large or drifting scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.attention_block import ATTENTIONS, attend, center_queries
from anisoscope.models.block import bias_queries_and_keys, make_block
from tests.models.reference_transformer import block_of

WIDTH, HEADS, TIME = 12, 3, 5


def make(norm, mask, kernel_init=jax.nn.initializers.normal(0.3)):  # noqa: B008 (a pure function)
    config = ModelConfig(layers=1, width=WIDTH, heads=HEADS, context=TIME, mask=mask, norm=norm)
    block = make_block(config, kernel_init)
    return config, block, jax.jit(block.init)(jax.random.key(0))


@pytest.mark.parametrize(("norm", "mask"), [("pre", "bidirectional"), ("post", "causal")])
def test_agrees_with_numpy_also_on_tiny_inputs(norm, mask):
    """An epsilon of 1e-5 in LayerNorm would show in the rows of variance 1e-4."""
    config, block, params = make(norm, mask)
    query_D, key_D = jax.random.normal(jax.random.key(1), (2, WIDTH))
    params = bias_queries_and_keys(params, query_D, key_D)
    assert np.asarray(params["qkv"]["bias"][-WIDTH:] == 0).all()
    scale_B11 = jnp.array([1.0, 0.01])[:, None, None]
    x_BTD = scale_B11 * jax.random.normal(jax.random.key(2), (2, TIME, WIDTH))
    found = jax.jit(block.apply)(params, x_BTD)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    for row, x_TD in enumerate(np.asarray(x_BTD, np.float64)):
        for value_BTX, expected_TX in zip(found, block_of(x_TD, exact, config, 1e-12), strict=True):
            np.testing.assert_allclose(value_BTX[row], expected_TX, atol=2e-5)


def test_starts_like_bert():
    _, _, params = make("post", "bidirectional", jax.nn.initializers.truncated_normal(0.02))
    for name in ("qkv", "attention_out", "mlp_up", "mlp_down"):
        assert not np.asarray(params[name]["bias"]).any()
        kernel = np.asarray(params[name]["kernel"])
        assert 0.035 < np.abs(kernel).max() <= 0.04
        # no smaller where it enters the residual
        np.testing.assert_allclose(kernel.std(), 0.0176, rtol=0.12)
    for name in ("norm_attention", "norm_mlp"):
        assert (np.asarray(params[name]["scale"]) == 1).all()
        assert not np.asarray(params[name]["bias"]).any()


CONTEXT = 7
QKV = jax.random.normal(jax.random.key(0), (3, 2, 5, 3, 4))
CAUSAL_TT = jnp.tril(jnp.ones((5, 5), bool))


def ours(*qkv, visible_TT, attention, sink=None):
    return attend(*qkv, visible_TT, ATTENTIONS[attention], CONTEXT, sink)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_large_scores_stay_finite(attention):
    q_BTHK, k_BTHK, v_BTHK = (100.0 * x for x in QKV)
    total = jax.jit(
        jax.value_and_grad(
            lambda *x: ours(*x, visible_TT=CAUSAL_TT, attention=attention).sum(), (0, 1, 2)
        )
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(total(q_BTHK, k_BTHK, v_BTHK)))


def test_a_drift_shared_by_all_queries_has_no_effect_once_they_are_centered():
    q_BTHK, k_BTHK, v_BTHK = QKV
    centered = jax.jit(
        lambda q: ours(
            center_queries(q, CAUSAL_TT), k_BTHK, v_BTHK, visible_TT=CAUSAL_TT, attention="softmax"
        )
    )
    np.testing.assert_allclose(
        *(centered(q) for q in (q_BTHK, q_BTHK + 7.0 * k_BTHK[:1, :1])), atol=1e-4
    )
