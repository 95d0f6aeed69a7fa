"""The pieces whose backward pass was rewritten, against their plain forms: values and gradients of both modes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.models.attention import ATTENTIONS, Sink, attend, centre
from anisoscope.models.linear import gelu, product

LAST_FIRST = (((2,), (0,)), ((), ()))


def plain_attention(q_BTHK, k_BTHK, v_BTHK, visible_TT, attention, sink=None):
    """Weights written out, the sink's (or the extra unit's) among them; what is hidden has a score of -1e30."""
    scores_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) / math.sqrt(q_BTHK.shape[-1])
    visible_11TT = jnp.ones((1, 1, 5, 5), bool) if visible_TT is None else visible_TT[None, None]
    if attention == "sigmoid":
        weights_BHTT = jnp.where(visible_11TT, 1 / (1 + CONTEXT * jnp.exp(-scores_BHTT)), 0.0)
        return jnp.einsum("bhts,bshk->bthk", weights_BHTT, v_BTHK)
    scores_BHTT = jnp.where(visible_11TT, scores_BHTT, -1e30)
    extra = jnp.zeros(scores_BHTT.shape[:3]) if attention == "softmax_one" else jnp.full((1, 1, 1), -1e30)
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


CONTEXT = 7
QKV = normal(*[(2, 5, 3, 4)] * 3)
CAUSAL_TT = jnp.tril(jnp.ones((5, 5), bool))


def ours(*qkv, visible_TT, attention, sink=None):
    return attend(*qkv, visible_TT, ATTENTIONS[attention], CONTEXT, sink)


def attention_pair(visible_TT, attention="softmax"):
    settings = {"visible_TT": visible_TT, "attention": attention}
    return functools.partial(ours, **settings), functools.partial(plain_attention, **settings), QKV


def with_sink(attention):
    return lambda q, k, v, score_BHT, value_HK: attention(
        q, k, v, visible_TT=CAUSAL_TT, attention="softmax", sink=Sink(score_BHT, value_HK)
    )


PAIRS = {
    "causal": attention_pair(CAUSAL_TT),
    "open": attention_pair(None),
    "window": attention_pair(CAUSAL_TT & ~jnp.tril(CAUSAL_TT, -2)),
    "softmax_one": attention_pair(CAUSAL_TT, "softmax_one"),
    "sigmoid": attention_pair(CAUSAL_TT, "sigmoid"),
    "sink": (with_sink(ours), with_sink(plain_attention), [*QKV, *normal((2, 3, 5), (3, 4))]),
    "centre": (lambda q: centre(q, CAUSAL_TT), plain_centre, QKV[:1]),
    "product": (lambda x, w: product(x, w, LAST_FIRST), jnp.matmul, normal((2, 5, 3), (3, 4))),
    "gelu": (gelu, plain_gelu, normal((2, 5, 3))),
}


def derivatives(function):
    """inputs, directions -> value, gradient, slope along the directions, and that of the gradient in two ways."""

    def loss(*inputs):
        return jnp.sum(jnp.sin(function(*inputs)))

    def compute(inputs, directions):
        gradient = jax.grad(loss, argnums=tuple(range(len(inputs))))
        _, slope = jax.jvp(loss, inputs, directions)
        _, forward_over_reverse = jax.jvp(gradient, inputs, directions)

        def slope_by_reverse(inputs):
            return sum(jnp.sum(g * d) for g, d in zip(gradient(*inputs), directions, strict=True))

        reverse_over_reverse = jax.grad(slope_by_reverse)(inputs)
        return function(*inputs), gradient(*inputs), slope, forward_over_reverse, reverse_over_reverse

    return compute


@pytest.mark.parametrize(("ours", "plain", "inputs"), PAIRS.values(), ids=PAIRS.keys())
@pytest.mark.slow
def test_values_and_gradients_are_those_of_the_plain_form(ours, plain, inputs):
    """Of both modes and orders; ours of two inputs at once."""
    directions = normal(*(x.shape[::-1] for x in inputs))
    pairs = [tuple(inputs), tuple(x.T for x in directions)]
    both = [tuple(jnp.stack([x, 2 * x]) for x in arrays) for arrays in pairs]
    found = jax.jit(jax.vmap(derivatives(ours)))(*both)
    expected_of = jax.jit(derivatives(plain))
    for row, factor in enumerate((1, 2)):
        expected = expected_of(*(tuple(factor * x for x in arrays) for arrays in pairs))
        jax.tree.map(lambda a, b, row=row: np.testing.assert_allclose(a[row], b, atol=1e-4), found, expected)
        values = jax.tree.map(lambda a, row=row: a[row], found[:2])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), values, expected[:2])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_large_scores_stay_finite(attention):
    q_BTHK, k_BTHK, v_BTHK = (100.0 * x for x in QKV)
    total = jax.jit(jax.value_and_grad(lambda *x: ours(*x, visible_TT=CAUSAL_TT, attention=attention).sum(), (0, 1, 2)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(total(q_BTHK, k_BTHK, v_BTHK)))


def test_taking_the_mean_from_a_rows_keys_changes_no_weight():
    """Why only queries are centred: it is the mean query, not the mean key, that sharpens a softmax."""
    q_BTHK, k_BTHK, v_BTHK = QKV
    attention = jax.jit(functools.partial(ours, visible_TT=None, attention="softmax"))
    plain = attention(q_BTHK, k_BTHK, v_BTHK)
    np.testing.assert_allclose(attention(q_BTHK, k_BTHK - k_BTHK.mean(1, keepdims=True), v_BTHK), plain, atol=1e-5)
    assert not np.allclose(attention(q_BTHK - q_BTHK.mean(1, keepdims=True), k_BTHK, v_BTHK), plain, atol=1e-2)


def test_a_drift_shared_by_all_queries_has_no_effect_once_they_are_centred():
    q_BTHK, k_BTHK, v_BTHK = QKV
    centred = jax.jit(lambda q: ours(centre(q, CAUSAL_TT), k_BTHK, v_BTHK, visible_TT=CAUSAL_TT, attention="softmax"))
    np.testing.assert_allclose(*(centred(q) for q in (q_BTHK, q_BTHK + 7.0 * k_BTHK[:1, :1])), atol=1e-4)
