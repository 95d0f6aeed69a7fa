"""The Transformer: decoder and encoder are one class and differ in the mask.

The default is GPT-2's block (pre-LN, learned positions, exact GELU, tied head). Matrix products run
in the compute type. Parameters, the residual stream, LayerNorm, softmax and logits are always
float32.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Bool, Float, Int, Key

from anisoscope.config.model_config import ModelConfig
from anisoscope.metrics.logit_lens import Unembedding, build_unembedding
from anisoscope.models import layers
from anisoscope.models.attention_block import ATTENTIONS, Sink, attend, center_queries
from anisoscope.models.fused_attention import fused_attend, is_supported
from anisoscope.models.layers import ACTIVATIONS, NORM_PLACES, POSITIONS, dense_product, embed
from anisoscope.models.masks import MASKS, visible_keys

Params = dict[str, Any]
MOST_UNROLLED = 12  # blocks that an accelerator's program unrolls instead of looping over them


class Activations(NamedTuple):
    """Activations that measurements read; XLA removes what a jitted caller does not return."""

    # N+1 entries: the embedding sum, then the residual stream after every block, before a final
    # norm
    resid_LBTD: Array
    # N entries, as they enter the dot product: normalized, centered, rotated; not yet over sqrt(K)
    q_NBTHK: Array
    k_NBTHK: Array
    # {hook point: its output in every block}, for the hook points of the model: attention_out and
    # mlp_out, the sublayers' outputs before they are added, and values, all heads side by side
    hooked_NBTD: dict[str, Array] | None = None
    snapshot_N: Any = None  # the results of `capture` for every block


class Model(NamedTuple):
    """Pure functions of a model; parameters are a nested dict of float32, stacked over blocks."""

    init: Callable[[Array], Params]  # key -> params; they do not depend on the mask
    # params, tokens_BT, taps_LBTD=None, visible_TT=None, capture=None -> logits_BTV, activations.
    # The N+1 taps are added to the entries of resid_LBTD. visible_TT replaces the configured mask.
    # capture(x_BTD, q_BTHK, k_BTHK) makes snapshot_N of every block: a training step that needs
    # few activations stores no more.
    apply: Callable[..., tuple[Array, Activations]]


class Block(nn.Module):
    """A Transformer block: attention and MLP around the residual stream."""

    config: ModelConfig
    dtype: jnp.dtype
    kernel_init: nn.initializers.Initializer
    # for the two kernels whose outputs are added to the residual stream
    residual_init: nn.initializers.Initializer
    epsilon: float = layers.GPT2_EPSILON
    fused: bool = False  # cuDNN's attention, where no mask is passed to the call
    unrolled: bool = False
    hook_points: tuple[str, ...] = ()
    capture: Callable[..., Any] | None = None

    @nn.compact
    def __call__(self, x_BTD, tap_BTD, visible_TT=None):
        residual = NORM_PLACES[self.config.norm].residual
        norm_attention, norm_mlp = (
            layers.make_norm(name, self.epsilon, bias=self.config.bias)
            for name in ("norm_attention", "norm_mlp")
        )
        x_BTD, q_BTHK, k_BTHK, hooked_BTD = residual(
            x_BTD, norm_attention, lambda x: self.attention(x, visible_TT)
        )
        x_BTD, mlp_out_BTD = residual(x_BTD, norm_mlp, self.mlp)
        if tap_BTD is not None:
            x_BTD = x_BTD + tap_BTD
        hooked_BTD = hooked_BTD | {"mlp_out": mlp_out_BTD}
        snapshot = None if self.capture is None else self.capture(x_BTD, q_BTHK, k_BTHK)
        return x_BTD, (
            x_BTD,
            q_BTHK,
            k_BTHK,
            {name: hooked_BTD[name] for name in self.hook_points},
            snapshot,
        )

    def attention(self, x_BTD, visible_TT):
        config, time = self.config, x_BTD.shape[1]
        masked = visible_TT is not None
        qkv_BTD = self.linear(3 * config.width, "qkv", self.kernel_init)(x_BTD)
        split = (*x_BTD.shape[:2], config.heads, config.width // config.heads)
        q_BTHK, k_BTHK, v_BTHK = (part.reshape(split) for part in jnp.split(qkv_BTD, 3, axis=-1))
        if config.qk_norm:
            q_BTHK, k_BTHK = head_norm(q_BTHK, "norm_query"), head_norm(k_BTHK, "norm_key")
        if config.center_queries:
            q_BTHK = center_queries(q_BTHK, visible_TT if masked else visible_keys(config, time))
        sink = self.learned_sink(q_BTHK) if config.sink else None
        if rotate := POSITIONS[config.position_encoding].rotate:
            q_BTHK, k_BTHK = rotate(q_BTHK), rotate(k_BTHK)
        if self.fused and not masked:
            mixed_BTHK = fused_attend(q_BTHK, k_BTHK, v_BTHK, config)
        else:
            visible_TT = visible_TT if masked else MASKS[config.mask].visible(config, time)
            variant = ATTENTIONS[config.attention]
            mixed_BTHK = attend(
                q_BTHK, k_BTHK, v_BTHK, visible_TT, variant, config.context, sink, self.unrolled
            )
        out = self.linear(config.width, "attention_out", self.residual_init)
        out_BTD = out(mixed_BTHK.reshape(x_BTD.shape)).astype(jnp.float32)
        hooked_BTD = {
            "attention_out": out_BTD,
            "values": v_BTHK.reshape(x_BTD.shape).astype(jnp.float32),
        }
        return out_BTD, q_BTHK, k_BTHK, hooked_BTD

    def learned_sink(self, q_BTHK):
        """Make a learned key and value per head that belong to no position (Sun et al. 2024)."""

        def initial(key):
            values_2HK = 0.02 * jax.random.normal(key, (2, *q_BTHK.shape[2:]))
            return {"key": values_2HK[0], "value": values_2HK[1]}

        sink = self.param("sink", initial)
        query_BTHK = q_BTHK.astype(jnp.float32) * q_BTHK.shape[-1] ** -0.5
        return Sink(jnp.einsum("bthk,hk->bht", query_BTHK, sink["key"]), sink["value"])

    def mlp(self, x_BTD):
        up = self.linear(self.config.expansion * self.config.width, "mlp_up", self.kernel_init)
        hidden_BTF = ACTIVATIONS[self.config.activation](up(x_BTD), self.unrolled)
        out_BTD = self.linear(self.config.width, "mlp_down", self.residual_init)(hidden_BTF).astype(
            jnp.float32
        )
        return out_BTD, out_BTD

    def linear(
        self, features: int, name: str, kernel_init: nn.initializers.Initializer
    ) -> nn.Dense:
        use_bias, dtype = self.config.bias, self.dtype
        return nn.Dense(
            features,
            use_bias,
            dtype=dtype,
            kernel_init=kernel_init,
            dot_general=dense_product,
            name=name,
        )


class Transformer(nn.Module):
    """A Transformer with GPT-2's initial values.

    They are N(0, 0.02²), over sqrt(2N) for the 2N projections that add up in the residual stream.
    """

    config: ModelConfig
    vocab_size: int
    dtype: jnp.dtype
    hook_points: tuple[str, ...] = ()
    backend: str = "cpu"

    @nn.compact
    def __call__(self, tokens_BT, taps_LBTD=None, visible_TT=None, capture=None):
        config, inner = self.config, nn.initializers.normal(0.02)
        into_residual = nn.initializers.normal(0.02 / (2 * config.layers) ** 0.5)
        table_VD = self.param("tokens", inner, (self.vocab_size, config.width))
        if config.same_first:
            tokens_BT = tokens_BT.at[:, 0].set(self.vocab_size - 1)
        accelerated = self.backend != "cpu"
        x_BTD = embed(table_VD, tokens_BT) if accelerated else table_VD[tokens_BT]
        if added := POSITIONS[config.position_encoding].added:
            x_BTD = x_BTD + added(self.param, config)[None, : tokens_BT.shape[1]]
            if accelerated:  # else XLA:GPU sums the gradient of positions over a transposed stream
                x_BTD = with_layout_constraint(x_BTD, Layout((0, 1, 2)))
        block_taps_NBTD = None
        if taps_LBTD is not None:
            x_BTD, block_taps_NBTD = x_BTD + taps_LBTD[0], taps_LBTD[1:]
        unrolled = accelerated and config.layers <= MOST_UNROLLED
        block = nn.remat(Block, prevent_cse=unrolled) if config.remat else Block
        axes = {
            "variable_axes": {"params": 0},
            "split_rngs": {"params": True},
            "in_axes": (0, nn.broadcast),
        }
        scanned = nn.scan(
            block, **axes, length=config.layers, unroll=config.layers if unrolled else 1
        )
        blocks = scanned(
            config,
            self.dtype,
            inner,
            into_residual,
            fused=is_supported(config, self.dtype, self.backend),
            unrolled=unrolled,
            hook_points=self.hook_points,
            capture=capture,
            name="blocks",
        )
        last_BTD, (resid_LBTD, *others) = blocks(x_BTD, block_taps_NBTD, visible_TT)
        if NORM_PLACES[config.norm].final:
            last_BTD = layers.make_norm("norm_final", bias=config.bias)(last_BTD)
        head_DV = (
            table_VD.T
            if config.tied
            else self.param("head", inner, (config.width, self.vocab_size))
        )
        logits_BTV = jnp.matmul(
            last_BTD.astype(self.dtype),
            head_DV.astype(self.dtype),
            preferred_element_type=jnp.float32,
        )
        return logits_BTV, Activations(jnp.concatenate([x_BTD[None], resid_LBTD]), *others)


def head_norm(x_BTHK: Float[Array, "B T H K"], name: str) -> Float[Array, "B T H K"]:
    """Normalize queries or keys over K: LayerNorm with one scale for all heads and no bias.

    Source: ViT-22B's query-key normalization, Dehghani et al. 2023.
    """
    return layers.make_norm(name, bias=False)(x_BTHK).astype(x_BTHK.dtype)


def compute_type(dtype: str) -> str:
    """Resolve `model.dtype`: "auto" is float32 on a CPU and bfloat16 on an accelerator."""
    if dtype == "auto":
        return "float32" if jax.default_backend() == "cpu" else "bfloat16"
    return dtype


def build(
    config: ModelConfig,
    vocab_size: int,
    dtype: str | None = None,
    hook_points: tuple[str, ...] = (),
    backend: str | None = None,
) -> Model:
    """Build the model of a configuration.

    Args:
        config: Settings of the model.
        vocab_size: Number of tokens, [MASK] included.
        dtype: Compute type in place of the configuration's.
        hook_points: Hook points inside the blocks whose outputs are returned too.
        backend: JAX backend that the program is written for: "cpu", "gpu" or "tpu"; None for the
            default. Parameters are the same on all.
    """
    transformer = Transformer(
        config,
        vocab_size,
        jnp.dtype(compute_type(dtype or config.dtype)),
        hook_points,
        backend or jax.default_backend(),
    )

    looped = transformer.clone(backend="cpu")  # unrolled, the draw compiles ten times as long

    def init(key: Key[Array, ""]) -> Params:
        return looped.init(key, jnp.zeros((1, config.context), jnp.int32))["params"]

    def apply(
        params: Params,
        tokens_BT: Int[Array, "B T"],
        taps_LBTD: Float[Array, "L B T D"] | None = None,
        visible_TT: Bool[Array, "T T"] | None = None,
        capture: Callable[..., Any] | None = None,
    ) -> tuple[Float[Array, "B T V"], Activations]:
        return transformer.apply({"params": params}, tokens_BT, taps_LBTD, visible_TT, capture)

    return Model(init, apply)


def unembedding(config: ModelConfig, params: Params) -> Unembedding:
    """Return the final norm and unembedding, which make logits of the last residual stream."""
    head_DV = params["tokens"].T if config.tied else params["head"]
    if not NORM_PLACES[config.norm].final:
        return build_unembedding(head_DV)
    norm = params["norm_final"]
    return build_unembedding(
        head_DV, "layer", norm["scale"], norm.get("bias", 0.0), layers.GPT2_EPSILON
    )


def count_parameters(params: Params) -> int:
    """Count the parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
