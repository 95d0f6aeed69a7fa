"""One block alone against NumPy in float64, and its initial values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
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
