"""How the Transformer runs: initial values, jit, rematerialisation, layer order, compute type, unused activations."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import transformer
from models.config import ModelConfig
from models.transformer import layer_norm
from tests.models.cases import CONFIGS, SMALL, VOCAB, loss_of, make


def assert_trees_close(left, right, atol):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=atol), left, right)


GPT2 = {name: getattr(SMALL, name) for name in ("mask", "prefix", "window", "leak", "attention", "qk_norm")}
GPT2 |= {"centre_queries": False, "sink": False}
VARIANTS = [config for config in CONFIGS.values() if dataclasses.replace(config, **GPT2) == SMALL]


@pytest.mark.parametrize("config", VARIANTS, ids=lambda config: f"{config.mask}-{config.attention}")
def test_variants_start_from_the_same_parameters_and_an_intervention_only_adds_some(config):
    decoder, variant = transformer.build(SMALL, VOCAB), transformer.build(config, VOCAB)
    key = jax.random.key(7)
    plain, other = jax.jit(decoder.init)(key), jax.jit(variant.init)(key)
    found = dict(jax.tree_util.tree_leaves_with_path(other))
    for path, leaf in jax.tree_util.tree_leaves_with_path(plain):
        np.testing.assert_array_equal(found[path], leaf)
    assert not np.array_equal(plain["tokens"], decoder.init(jax.random.key(8))["tokens"])


def test_initial_values_are_those_of_gpt2():
    config = ModelConfig(layers=4, width=128, heads=4, context=64)
    params = transformer.build(config, 100).init(jax.random.key(0))
    blocks = params["blocks"]
    inner, into_residual = 0.02, 0.02 / np.sqrt(8)
    for name, stddev in {
        "qkv": inner,
        "mlp_up": inner,
        "attention_out": into_residual,
        "mlp_down": into_residual,
    }.items():
        assert not blocks[name]["bias"].any()
        assert all(abs(np.std(kernel) / stddev - 1) < 0.03 for kernel in blocks[name]["kernel"])
        assert not np.array_equal(blocks[name]["kernel"][0], blocks[name]["kernel"][1])
    for table in (params["tokens"], params["positions"]):
        assert abs(np.std(table) / 0.02 - 1) < 0.03
    for norm in (blocks["norm_attention"], blocks["norm_mlp"], params["norm_final"]):
        assert (norm["scale"] == 1).all()
        assert not norm["bias"].any()


@pytest.mark.parametrize("name", ["gpt2", "bert", "rotary_leak_all", "rotary_prefix_sigmoid"])
def test_jit_changes_nothing(name):
    model, params, tokens_BT = make(CONFIGS[name])
    compiled = jax.jit(model.apply)(params, tokens_BT)
    with jax.disable_jit():
        plain = model.apply(params, tokens_BT)
    assert_trees_close(compiled, plain, atol=1e-5)


def test_remat_recomputes_and_changes_nothing():
    programs = {}
    for remat in (False, True):
        model, params, tokens_BT = make(dataclasses.replace(SMALL, remat=remat))
        programs[remat] = jax.jit(jax.value_and_grad(loss_of(model, tokens_BT))).trace(params)
    products = {remat: str(traced.jaxpr).count("dot_general") for remat, traced in programs.items()}
    assert products[True] > products[False]
    plain, recomputed = (programs[remat].lower().compile()(params) for remat in (False, True))
    assert_trees_close(plain, recomputed, atol=1e-6)


@pytest.mark.parametrize("layer", range(SMALL.layers))
def test_layers_run_in_their_order(layer):
    """With every other block silenced, the residual stream moves at entry layer + 1 alone."""
    model, params, tokens_BT = make(SMALL)
    keep_N = jnp.arange(SMALL.layers) == layer
    for name in ("attention_out", "mlp_down"):
        params["blocks"][name] = jax.tree.map(
            lambda leaf: leaf * keep_N.reshape(-1, *[1] * (leaf.ndim - 1)), params["blocks"][name]
        )
    resid_NBTD = model.apply(params, tokens_BT)[1].resid_NBTD
    moved_N = np.abs(np.diff(resid_NBTD, axis=0)).max(axis=(1, 2, 3)) > 0
    np.testing.assert_array_equal(moved_N, keep_N)


def test_a_tap_enters_after_its_block():
    model, params, tokens_BT = make(SMALL)
    taps_NBTD = jnp.zeros((SMALL.layers, *tokens_BT.shape, SMALL.width)).at[1].set(3.0)
    plain, tapped = (model.apply(params, tokens_BT, taps)[1].resid_NBTD for taps in (None, taps_NBTD))
    np.testing.assert_array_equal(tapped[:2], plain[:2])
    np.testing.assert_allclose(tapped[2], plain[2] + 3.0, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert", "rotary_leak_all", "rotary_prefix_sigmoid"])
def test_bfloat16_computes_near_float32(name):
    model, params, tokens_BT = make(CONFIGS[name])
    rough_model = transformer.build(CONFIGS[name], VOCAB, "bfloat16")
    exact, _ = jax.jit(model.apply)(params, tokens_BT)
    rough, activations = jax.jit(rough_model.apply)(params, tokens_BT)
    assert (rough.dtype, activations.resid_NBTD.dtype, activations.q_NBTHK.dtype) == (
        jnp.float32,
        jnp.float32,
        jnp.bfloat16,
    )
    error = jnp.linalg.norm(rough - exact) / jnp.linalg.norm(exact)
    assert 1e-4 < error < 3e-2  # eight bits of mantissa, and really used
    gradients = jax.eval_shape(jax.grad(loss_of(rough_model, tokens_BT)), params)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradients))


def test_the_compute_type_of_a_cpu_is_float32():
    tokens_BT = jnp.zeros((1, 4), jnp.int32)
    model = transformer.build(SMALL, VOCAB)
    params = model.init(jax.random.key(0))
    assert model.apply(params, tokens_BT)[1].q_NBTHK.dtype == jnp.float32


def test_activations_nobody_returns_cost_no_memory():
    """The working memory of a forward pass does not grow with the layers, unless the activations are returned."""
    entry = 4 * 8 * 64 * 64  # bytes of one layer's residual stream

    def memory(layers, returned):
        model = transformer.build(ModelConfig(layers=layers, width=64, heads=2, context=64), VOCAB, "float32")
        params = jax.eval_shape(model.init, jax.random.key(0))
        tokens_BT = jax.ShapeDtypeStruct((8, 64), jnp.int32)
        used = jax.jit(lambda *inputs: model.apply(*inputs)[:returned]).lower(params, tokens_BT).compile()
        return used.memory_analysis().temp_size_in_bytes + used.memory_analysis().output_size_in_bytes

    assert memory(12, returned=1) - memory(4, returned=1) < entry
    assert memory(12, returned=2) - memory(4, returned=2) >= 8 * 3 * entry


def test_layer_norm_far_from_the_origin():
    """At a mean of 1000 deviations, E[x²] - E[x]² would be lost in float32."""
    x_BTD = 1000.0 + jax.random.normal(jax.random.key(0), (2, 3, 64))
    out_BTD, _ = layer_norm(SMALL, "norm").init_with_output(jax.random.key(0), x_BTD)
    exact_BTD = np.asarray(x_BTD, np.float64)
    exact_BTD -= exact_BTD.mean(-1, keepdims=True)
    exact_BTD /= np.sqrt((exact_BTD**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out_BTD, exact_BTD, atol=1e-3)


def test_many_models_at_once():
    """vmap over parameters equals a loop."""
    model, params, tokens_BT = make(SMALL)
    several = [jax.tree.map(lambda leaf, factor=factor: leaf * factor, params) for factor in (1.0, 0.5)]
    gradient = jax.grad(loss_of(model, tokens_BT))
    stacked = jax.jit(jax.vmap(gradient))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *several))
    looped = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(jax.jit(gradient), several))
    assert_trees_close(stacked, looped, atol=1e-5)
