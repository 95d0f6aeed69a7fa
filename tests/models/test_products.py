"""The pieces whose backward pass was rewritten, against their plain forms: values and gradients of both modes."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from models.attention import attend
from models.linear import gelu, product

LAST_FIRST = (((2,), (0,)), ((), ()))


def plain_attention(q_BTHK, k_BTHK, v_BTHK, causal):
    scores_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) / math.sqrt(q_BTHK.shape[-1])
    if causal:
        hidden_TT = np.triu(np.ones((q_BTHK.shape[1],) * 2, bool), k=1)[None, None]
        scores_BHTT = jnp.where(hidden_TT, -1e30, scores_BHTT)
    return jnp.einsum("bhts,bshk->bthk", jax.nn.softmax(scores_BHTT), v_BTHK)


def plain_gelu(x_BTF):
    return x_BTF * jax.scipy.stats.norm.cdf(x_BTF)


def normal(*shapes):
    return [jax.random.normal(jax.random.key(number), shape) for number, shape in enumerate(shapes)]


PAIRS = {
    "causal": (lambda *x: attend(*x, True), lambda *x: plain_attention(*x, True), normal(*[(2, 5, 3, 4)] * 3)),
    "open": (lambda *x: attend(*x, False), lambda *x: plain_attention(*x, False), normal(*[(2, 5, 3, 4)] * 3)),
    "product": (lambda x, w: product(x, w, LAST_FIRST), jnp.matmul, normal((2, 5, 3), (3, 4))),
    "gelu": (gelu, plain_gelu, normal((2, 5, 3))),
}


@pytest.mark.parametrize(("ours", "plain", "inputs"), PAIRS.values(), ids=PAIRS.keys())
def test_values_and_gradients_are_those_of_the_plain_form(ours, plain, inputs):
    everywhere = tuple(range(len(inputs)))

    def gradient(function):
        return jax.value_and_grad(lambda *x: jnp.sum(jnp.sin(function(*x))), argnums=everywhere)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), gradient(ours)(*inputs), gradient(plain)(*inputs)
    )
    batched = [jnp.stack([x, 2 * x]) for x in inputs]
    looped = [gradient(plain)(*[x[row] for x in batched]) for row in range(2)]
    jax.tree.map(
        lambda a, *rows: np.testing.assert_allclose(a, np.stack(rows), atol=1e-5),
        jax.vmap(gradient(ours))(*batched),
        *looped,
    )


@pytest.mark.parametrize(("ours", "plain", "inputs"), PAIRS.values(), ids=PAIRS.keys())
def test_gradients_of_both_modes_and_orders_agree_with_differences(ours, plain, inputs):
    check_grads(lambda *x: ours(*map(jnp.asarray, x)), inputs, order=2, modes=("fwd", "rev"), atol=2e-2, rtol=2e-2)


def test_large_scores_stay_finite():
    q_BTHK, k_BTHK, v_BTHK = (100.0 * x for x in normal(*[(1, 6, 2, 4)] * 3))
    out, gradients = jax.value_and_grad(lambda *x: attend(*x, True).sum(), argnums=(0, 1, 2))(q_BTHK, k_BTHK, v_BTHK)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((out, gradients)))
