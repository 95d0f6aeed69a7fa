"""How the Transformer runs: initial values, jit, rematerialization, types, hook points."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.measure_config import HOOK_POINTS
from anisoscope.config.model_config import ModelConfig
from anisoscope.models import transformer
from anisoscope.models.layers import make_norm
from anisoscope.models.masks import visible_keys
from tests.models.cases import CONFIGS, SMALL, VOCAB, loss_of, made


def assert_trees_close(left, right, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), left, right)


def test_variants_start_from_the_same_parameters_and_an_intervention_only_adds_some():
    """Whatever the mask, the attention variant and what is done to queries and keys."""
    kinds = ("mask", "prefix", "window", "leak", "attention", "qk_norm", "center_queries", "sink")
    config = dataclasses.replace(
        SMALL, **{kind: getattr(CONFIGS["prefix_softmax"], kind) for kind in kinds}
    )
    plain, other, another = (
        initial(model, seed) for model, seed in ((SMALL, 7), (config, 7), (SMALL, 8))
    )
    found = dict(jax.tree_util.tree_leaves_with_path(other))
    for path, leaf in jax.tree_util.tree_leaves_with_path(plain):
        np.testing.assert_array_equal(found[path], leaf)
    assert not np.array_equal(plain["tokens"], another["tokens"])


def test_a_mask_that_is_given_takes_the_place_of_the_configurations():
    """So that one program measures models of all masks."""
    case = made("prefix_softmax")
    other = dataclasses.replace(case.config, mask="bidirectional", prefix=0, window=0, leak=0.0)
    assert other != case.config
    model = transformer.build(other, VOCAB, "float32")
    visible_TT = visible_keys(case.config, case.tokens_BT.shape[1])
    apply = jax.jit(
        lambda params, visible_TT: model.apply(params, case.tokens_BT, visible_TT=visible_TT)
    )
    assert_trees_close(apply(case.params, visible_TT), (case.logits_BTV, case.activations), 1e-5)


def initial(config, seed):
    return initializer(config)(jax.random.key(seed))


@functools.cache
def initializer(config):
    return jax.jit(transformer.build(config, VOCAB, "float32").init)


def test_initial_values_are_those_of_gpt2():
    params = initial(ModelConfig(layers=4, width=128, heads=4, context=64), 0)
    blocks = params["blocks"]
    inner, into_residual = 0.02, 0.02 / np.sqrt(8)
    stddevs = {
        "qkv": inner,
        "mlp_up": inner,
        "attention_out": into_residual,
        "mlp_down": into_residual,
    }
    for name, stddev in stddevs.items():
        assert not blocks[name]["bias"].any()
        assert all(
            abs(np.std(kernel) / stddev - 1) < 0.03 for kernel in np.asarray(blocks[name]["kernel"])
        )
        assert not np.array_equal(blocks[name]["kernel"][0], blocks[name]["kernel"][1])
    for table in (params["tokens"], params["positions"]):
        assert abs(np.std(table) / 0.02 - 1) < 0.03
    for norm in (blocks["norm_attention"], blocks["norm_mlp"], params["norm_final"]):
        assert (norm["scale"] == 1).all()
        assert not norm["bias"].any()


def test_remat_recomputes_and_changes_nothing():
    programs, case = {}, made("gpt2")
    for remat in (False, True):
        model = transformer.build(dataclasses.replace(SMALL, remat=remat), VOCAB, "float32")
        programs[remat] = jax.jit(jax.value_and_grad(loss_of(model, case.tokens_BT[:2]))).trace(
            case.params
        )
    products = {remat: str(traced.jaxpr).count("dot_general") for remat, traced in programs.items()}
    assert products[True] > products[False]
    plain, recomputed = (programs[remat].lower().compile()(case.params) for remat in (False, True))
    assert_trees_close(plain, recomputed, atol=1e-6)


def test_bfloat16_computes_near_float32():
    case = made("prefix_softmax")
    rough_model = transformer.build(case.config, VOCAB, "bfloat16")
    rough, activations = jax.jit(rough_model.apply)(case.params, case.tokens_BT)
    assert rough.dtype == activations.resid_LBTD.dtype == jnp.float32
    assert activations.q_NBTHK.dtype == jnp.bfloat16
    error = np.linalg.norm(rough - case.logits_BTV) / np.linalg.norm(case.logits_BTV)
    assert 1e-4 < error < 3e-2  # eight bits of mantissa, and really used
    gradients = jax.eval_shape(jax.grad(loss_of(rough_model, case.tokens_BT)), case.params)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradients))


@pytest.mark.parametrize("name", ["gpt2", pytest.param("bert", marks=pytest.mark.slow)])
def test_hook_points_are_what_is_added_to_the_residual_stream_and_what_attention_mixes(name):
    """They are returned only on request, and everything else stays the same."""
    case = made(name)
    assert case.activations.hooked_NBTD == {}
    model = transformer.build(case.config, VOCAB, "float32", HOOK_POINTS)
    logits_BTV, found = jax.device_get(jax.jit(model.apply)(case.params, case.tokens_BT))
    assert_trees_close((logits_BTV, found[:3]), (case.logits_BTV, case.activations[:3]), atol=1e-6)
    blocks, hook_points, resid_LBTD = case.params["blocks"], found.hooked_NBTD, found.resid_LBTD
    for n in range(case.config.layers):

        def norm(which, x_BTD, n=n):
            of_block = {key: leaf[n] for key, leaf in blocks[f"norm_{which}"].items()}
            return np.asarray(make_norm().apply({"params": of_block}, x_BTD))

        before_BTD, after_BTD = resid_LBTD[n], resid_LBTD[n + 1]
        attention_BTD, mlp_BTD = hook_points["attention_out"][n], hook_points["mlp_out"][n]
        if name == "gpt2":
            read_BTD, summed_BTD = (
                norm("attention", before_BTD),
                before_BTD + attention_BTD + mlp_BTD,
            )
        else:
            read_BTD, summed_BTD = (
                before_BTD,
                norm("mlp", norm("attention", before_BTD + attention_BTD) + mlp_BTD),
            )
        np.testing.assert_allclose(summed_BTD, after_BTD, atol=1e-5)
        qkv = {key: np.asarray(leaf[n]) for key, leaf in blocks["qkv"].items()}
        values_BTD = (read_BTD @ qkv["kernel"] + qkv["bias"])[..., -case.config.width :]
        np.testing.assert_allclose(hook_points["values"][n], values_BTD, atol=1e-5)


def test_layer_norm_far_from_the_origin():
    """At a mean of 1000 deviations, E[x²] - E[x]² would be lost in float32."""
    x_BTD = 1000.0 + jax.random.normal(jax.random.key(0), (2, 3, 64))
    out_BTD, _ = jax.jit(make_norm("norm").init_with_output)(jax.random.key(0), x_BTD)
    exact_BTD = np.asarray(x_BTD, np.float64)
    exact_BTD -= exact_BTD.mean(-1, keepdims=True)
    exact_BTD /= np.sqrt((exact_BTD**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out_BTD, exact_BTD, atol=1e-3)
