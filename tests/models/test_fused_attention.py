"""Programs of accelerators: the same outputs and gradients as on a CPU, and cuDNN's attention."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import fused_attention, transformer
from anisoscope.models.attention_block import ATTENTIONS, attend
from anisoscope.models.masks import MASKS

CONFIG = ModelConfig(layers=2, width=32, heads=2, context=16, dtype="bfloat16")
VOCAB = 11
BFLOAT16 = jnp.dtype("bfloat16")


def changed(**changes):
    return dataclasses.replace(CONFIG, **changes)


@pytest.fixture
def recent_gpu(monkeypatch):
    monkeypatch.setattr(fused_attention, "_has_fused_attention", lambda: True)


@pytest.mark.parametrize(
    ("config", "dtype", "backend", "fused"),
    [
        (CONFIG, "bfloat16", "gpu", True),
        (changed(mask="bidirectional", qk_norm=True), "bfloat16", "gpu", True),
        (changed(mask="window", window=3, center_queries=True), "bfloat16", "gpu", True),
        (changed(attention="softmax_one"), "bfloat16", "gpu", True),
        (changed(attention="softmax_one", mask="window", window=3), "bfloat16", "gpu", False),
        (changed(attention="sigmoid"), "bfloat16", "gpu", False),
        (changed(mask="prefix", prefix=4), "bfloat16", "gpu", False),
        (changed(mask="leak", leak=0.1), "bfloat16", "gpu", False),
        (changed(sink=True), "bfloat16", "gpu", False),
        (changed(heads=8), "bfloat16", "gpu", False),  # heads of 4
        (CONFIG, "float32", "gpu", False),
        (CONFIG, "bfloat16", "tpu", False),
        (CONFIG, "bfloat16", "cpu", False),
    ],
)
def test_fused_attention_is_chosen_by_backend_type_mask_and_variant(
    recent_gpu, config, dtype, backend, fused
):
    assert fused_attention.is_supported(config, jnp.dtype(dtype), backend) == fused


def test_a_gpu_before_ampere_or_of_another_make_has_no_fused_attention(monkeypatch):
    for capability, supported in (("9.0", True), ("8.0", True), ("7.5", False), ("gfx90a", False)):
        device = type("Device", (), {"compute_capability": capability})
        monkeypatch.setattr(jax, "devices", lambda device=device: [device])
        assert fused_attention.is_supported(CONFIG, BFLOAT16, "gpu") == supported


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        changed(mask="bidirectional"),
        changed(mask="window", window=3),
        changed(attention="softmax_one"),
        changed(attention="softmax_one", mask="bidirectional"),
    ],
    ids=lambda config: f"{config.mask}-{config.attention}",
)
def test_the_fused_call_is_attention_in_values_and_gradients(config):
    """In float32 by XLA: what cuDNN is asked for is what `attend` computes."""
    x = jax.random.normal(jax.random.key(0), (4, 2, config.context, 2, 8))
    visible_TT = MASKS[config.mask].visible(config, config.context)
    variant = ATTENTIONS[config.attention]

    def own(*qkv):
        return attend(*qkv, visible_TT, variant, config.context)

    def fused(*qkv):
        return fused_attention.fused_attend(*qkv, config, implementation="xla")

    results = []
    for attention in (own, fused):
        mixed, pullback = jax.vjp(attention, *x[:3])
        results.append((mixed, *pullback(x[3])))
    for expected, found in zip(*results, strict=True):
        np.testing.assert_allclose(found, expected, atol=2e-5)


def test_an_accelerators_program_has_the_same_parameters_loss_and_gradients():
    """Blocks one after another and the embedding's gradient as a product, in float32 on a CPU."""
    config = changed(dtype="float32", remat=True)
    tokens_BT = jax.random.randint(jax.random.key(1), (3, config.context), 0, VOCAB)
    results = []
    for backend in ("cpu", "gpu"):
        model = transformer.build(config, VOCAB, backend=backend)
        params = model.init(jax.random.key(0))

        def loss(params, model=model):
            logits_BTV = model.apply(params, tokens_BT)[0]
            return -jax.nn.log_softmax(logits_BTV)[..., 3].mean()

        results.append((params, *jax.jit(jax.value_and_grad(loss))(params)))
    assert jax.tree.structure(results[0]) == jax.tree.structure(results[1])
    jax.tree.map(np.testing.assert_array_equal, results[0][0], results[1][0])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), results[0][1:], results[1][1:]
    )


def test_a_gpus_training_program_calls_cudnn_in_both_passes_and_has_no_loop(
    recent_gpu, monkeypatch
):
    """Lowered without a GPU; the three questions that JAX asks one are answered here."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(cudnn, "is_cuda_compute_capability_equal", lambda capability: False)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91000)

    def lowered(config):
        model = transformer.build(config, VOCAB, backend="gpu")
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        tokens_BT = jax.ShapeDtypeStruct((2, config.context), jnp.int32)
        gradient = jax.jit(jax.grad(lambda params, tokens: model.apply(params, tokens)[0].sum()))
        return gradient.trace(shapes, tokens_BT).lower(lowering_platforms=("cuda",)).as_text()

    program = lowered(CONFIG)
    for call in ("@__cudnn$fmhaSoftmax(", "@__cudnn$fmhaSoftmaxBackward("):
        assert call in program
    assert "stablehlo.while" not in program
    assert "__cudnn" not in lowered(changed(attention="sigmoid"))
    assert "stablehlo.while" in lowered(changed(layers=transformer.MOST_UNROLLED + 1))


def test_gradients_of_scores_are_products_in_bfloat16_close_to_float32():
    q_BTHK, k_BTHK, v_BTHK = jax.random.normal(jax.random.key(0), (3, 2, 16, 2, 8))

    def loss(q_BTHK, k_BTHK, dtype):
        heads = (x.astype(dtype) for x in (q_BTHK, k_BTHK, v_BTHK))
        visible_TT = jnp.tril(jnp.ones((16, 16), bool))
        mixed = attend(*heads, visible_TT, ATTENTIONS["softmax"], 16)
        return jnp.square(mixed.astype(jnp.float32)).sum()

    gradient = jax.grad(loss, (0, 1))
    exact = gradient(q_BTHK, k_BTHK, jnp.float32)
    for half, true in zip(gradient(q_BTHK, k_BTHK, BFLOAT16), exact, strict=True):
        np.testing.assert_allclose(half, true, atol=0.03 * np.abs(true).max())
    program = str(jax.make_jaxpr(lambda *x: gradient(*x, BFLOAT16))(q_BTHK, k_BTHK))
    assert set(re.findall(r"(\w+)\[2,2,16,8\] = dot_general\[", program)) == {"bf16"}
