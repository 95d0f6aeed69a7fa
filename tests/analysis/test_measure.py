import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from analysis.measure import make_measure
from analysis.probe import POSITION_SETS, make_probe
from analysis.quantities import QUANTITIES
from experiments.base import FAMILIES, ModelConfig
from models.transformer import build
from tests import reference

VOCAB, CONTEXT, POINTS, BATCHES = 11, 12, 30, 2
PROBE = make_probe(np.random.default_rng(0).integers(0, VOCAB, 20 * CONTEXT), CONTEXT, POINTS, BATCHES, 0)


def tiny(mask):
    """Rotary, so that layer 0 is full of copies."""
    config = ModelConfig(layers=2, width=16, heads=2, context=CONTEXT, mask=mask, positions="rotary")
    model = build(config, VOCAB, "float32")
    params = model.init(jax.random.key(0))
    return model.apply, jax.tree.map(lambda leaf: 5 * leaf + 0.1, params)  # scores far from 0, a drift to be seen


@functools.cache
def measured(mask, families=FAMILIES):
    apply, params = tiny(mask)
    return jax.jit(make_measure(apply, mask, families))(params, *PROBE)


def slow(activations, picks, without_first, causal):
    """The quantities of one batch and position set by loops over layers and heads, in float64."""
    visible = np.ones((CONTEXT, CONTEXT), bool)
    if causal:
        visible = np.tril(visible)
    if without_first:
        visible[0] = visible[:, 0] = False
    layers, heads = [], []
    for resid in activations.resid_NBTD:
        cloud = resid.reshape(-1, resid.shape[-1])[picks]
        microscope, useless, dropped = reference.twonn_microscope(cloud)
        layers.append(
            {
                "anisotropy": reference.anisotropy(cloud),
                "twonn": reference.twonn(cloud),
                "twonn_mle": reference.twonn_mle(cloud),
                "twonn_microscope": microscope,
                "duplicate_points": reference.duplicate_points(cloud),
                "twonn_dropped": 0,
                "microscope_useless": useless,
                "microscope_dropped": dropped,
                "mean_cosine": reference.mean_cosine(cloud),
                "drift": reference.drift(cloud),
                "mean_norm": reference.mean_norm(cloud),
            }
        )
    for q_BTHK, k_BTHK in zip(activations.q_NBTHK, activations.k_NBTHK, strict=True):
        for head in range(q_BTHK.shape[2]):
            q, k = q_BTHK[:, :, head], k_BTHK[:, :, head]
            names = (
                "score_mean",
                "score_std",
                "score_std_within",
                "attention_entropy",
                "attention_max",
                "attention_min",
            )
            statistics = dict(zip(names, reference.attention_statistics(q, k, visible), strict=True))
            q, k = (reference.float64(x.reshape(-1, x.shape[-1])[picks]) for x in (q, k))
            heads.append(
                statistics
                | {
                    "query_drift": reference.drift(q),
                    "key_drift": reference.drift(k),
                    "query_key_alignment": reference.cosine(q.mean(0), k.mean(0)),
                    "query_cosine": reference.mean_cosine(q),
                    "key_cosine": reference.mean_cosine(k),
                    "query_key_cosine": reference.cross_cosine(q, k),
                }
            )
    values = {name: [layer[name] for layer in layers] for name in layers[0]}
    return values | {name: np.reshape([head[name] for head in heads], (2, 2)) for name in heads[0]}


@pytest.mark.parametrize("mask", ["causal", "bidirectional"])
def test_agrees_with_slow_loops_in_float64(mask):
    apply, params = tiny(mask)
    found = measured(mask)
    assert found.keys() == QUANTITIES.keys()
    for batch, tokens in enumerate(PROBE.tokens_GWT):
        activations = jax.tree.map(np.asarray, jax.jit(apply)(params, tokens)[1])
        for positions, picks in enumerate(PROBE.picks_SGP[:, batch]):
            expected = slow(activations, picks, POSITION_SETS[positions] == "without_first", mask == "causal")
            assert expected.keys() == found.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(found[name][positions, batch], value, rtol=1e-4, err_msg=name)
    assert (found["duplicate_points"][:, :, 0] > 0).all()


def test_shapes_are_the_declared_dimensions():
    apply, params = tiny("causal")
    sizes = {"layer": 3, "block": 2, "head": 2}
    shapes = jax.eval_shape(make_measure(apply, "causal", FAMILIES), params, *PROBE)
    for name, quantity in QUANTITIES.items():
        assert shapes[name].shape == (len(POSITION_SETS), BATCHES, *(sizes[dim] for dim in quantity.dims))
        assert shapes[name].dtype == (jnp.int32 if quantity.units == "points" else jnp.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_alone_gives_its_quantities_and_no_others(family):
    alone = measured("causal", (family,))
    assert alone.keys() == {name for name, quantity in QUANTITIES.items() if quantity.family == family}
    for name, value in alone.items():
        np.testing.assert_allclose(value, measured("causal")[name], rtol=1e-5)


def test_one_trace_serves_all_parameters():
    apply, params = tiny("causal")
    traces = []

    def counted(params, tokens_BT):
        traces.append(1)
        return apply(params, tokens_BT)

    measure = jax.jit(make_measure(counted, "causal", FAMILIES))
    results = [
        measure(jax.tree.map(lambda leaf, scale=scale: leaf * scale, params), *PROBE) for scale in (1.0, 0.5, 2.0)
    ]
    assert len(traces) == 1
    assert results[0]["anisotropy"].tolist() != results[1]["anisotropy"].tolist()


def test_jit_changes_nothing():
    apply, params = tiny("bidirectional")
    eager = make_measure(apply, "bidirectional", FAMILIES)(params, *map(jnp.asarray, PROBE))
    for name, value in eager.items():
        np.testing.assert_allclose(value, measured("bidirectional")[name], rtol=1e-4, err_msg=name)
