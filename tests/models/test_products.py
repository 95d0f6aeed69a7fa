"""What attention does to large scores, and to means and drifts of keys and queries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.models.attention_block import ATTENTIONS, attend, center_queries

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
