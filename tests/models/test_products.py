"""The pieces whose backward pass was rewritten, against their plain forms: values and gradients of both modes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from models.attention import Sink, attend, centre
from models.config import ATTENTIONS
from models.linear import gelu, product
from models.masks import visible_keys
from tests.models.cases import SMALL

LAST_FIRST = (((2,), (0,)), ((), ()))


def plain_attention(q_BTHK, k_BTHK, v_BTHK, config, sink=None):
    """Weights written out, the sink's (or the extra unit's) among them; what is hidden has a score of -1e30."""
    scores_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) / math.sqrt(q_BTHK.shape[-1])
    scores_BHTT = jnp.where(visible_keys(config, q_BTHK.shape[1])[None, None], scores_BHTT, -1e30)
    if config.attention == "sigmoid":
        return jnp.einsum("bhts,bshk->bthk", 1 / (1 + config.context * jnp.exp(-scores_BHTT)), v_BTHK)
    extra = jnp.zeros(scores_BHTT.shape[:3]) if config.attention == "softmax_one" else jnp.full((1, 1, 1), -1e30)
    extra_BHT1 = jnp.broadcast_to(sink.score_BHT if sink else extra, scores_BHTT.shape[:3])[..., None]
    weights_BHTS = jax.nn.softmax(jnp.concatenate([scores_BHTT, extra_BHT1], axis=-1))
    mixed_BTHK = jnp.einsum("bhts,bshk->bthk", weights_BHTS[..., :-1], v_BTHK)
    return mixed_BTHK + (weights_BHTS[..., -1].swapaxes(1, 2)[..., None] * sink.value_HK[None, None] if sink else 0.0)


def plain_centre(q_BTHK):
    return jnp.stack([q_BTHK[:, i] - q_BTHK[:, : i + 1].mean(1) for i in range(q_BTHK.shape[1])], axis=1)


def plain_gelu(x_BTF):
    return x_BTF * jax.scipy.stats.norm.cdf(x_BTF)


def normal(*shapes):
    return [jax.random.normal(jax.random.key(number), shape) for number, shape in enumerate(shapes)]


QKV = normal(*[(2, 5, 3, 4)] * 3)
ATTENTION = {
    "causal": {},
    "open": {"mask": "bidirectional"},
    "window": {"mask": "window", "window": 2},
    "softmax_one": {"attention": "softmax_one"},
    "sigmoid": {"attention": "sigmoid"},
}


def attention_pair(**changes):
    config = dataclasses.replace(SMALL, **{"heads": 3, "context": 5} | changes)
    return (lambda *x: attend(*x, config)), (lambda *x: plain_attention(*x, config)), QKV


def with_sink(attention):
    config = dataclasses.replace(SMALL, heads=3, context=5)
    return lambda q, k, v, score_BHT, value_HK: attention(q, k, v, config, Sink(score_BHT, value_HK))


PAIRS = {name: attention_pair(**changes) for name, changes in ATTENTION.items()} | {
    "sink": (with_sink(attend), with_sink(plain_attention), [*QKV, *normal((2, 3, 5), (3, 4))]),
    "centre": (lambda q: centre(q, visible_keys(SMALL, 5)), plain_centre, QKV[:1]),
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


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_large_scores_stay_finite(attention):
    config = dataclasses.replace(SMALL, attention=attention)
    q_BTHK, k_BTHK, v_BTHK = (100.0 * x for x in normal(*[(1, 6, 4, 4)] * 3))
    out, gradients = jax.value_and_grad(lambda *x: attend(*x, config).sum(), argnums=(0, 1, 2))(q_BTHK, k_BTHK, v_BTHK)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((out, gradients)))


def test_taking_the_mean_from_a_rows_keys_changes_no_weight():
    """Why only queries are centred: it is the mean query, not the mean key, that sharpens a softmax."""
    q_BTHK, k_BTHK, v_BTHK = QKV
    config = dataclasses.replace(SMALL, mask="bidirectional")
    plain = attend(q_BTHK, k_BTHK, v_BTHK, config)
    np.testing.assert_allclose(attend(q_BTHK, k_BTHK - k_BTHK.mean(1, keepdims=True), v_BTHK, config), plain, atol=1e-5)
    assert not np.allclose(attend(q_BTHK - q_BTHK.mean(1, keepdims=True), k_BTHK, v_BTHK, config), plain, atol=1e-2)


def test_a_drift_shared_by_all_queries_has_no_effect_once_they_are_centred():
    q_BTHK, k_BTHK, v_BTHK = QKV
    visible_TT = visible_keys(SMALL, 5)
    outs = [attend(centre(q, visible_TT), k_BTHK, v_BTHK, SMALL) for q in (q_BTHK, q_BTHK + 7.0 * k_BTHK[:1, :1])]
    np.testing.assert_allclose(*outs, atol=1e-4)
