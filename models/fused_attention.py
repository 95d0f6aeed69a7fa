"""cuDNN's fused attention for training in bfloat16 on a GPU: no T x T scores are written.

It computes the same as `attention_block.attend`, for the masks that cuDNN has names for. Everything
else, float32 and all measurements use `attend`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.masks import MASKS

OLDEST_GPU = (8, 0)  # compute capability, Ampere
WIDEST_HEAD = 128
HEAD_MULTIPLE = 8


def is_supported(config: ModelConfig, dtype: jnp.dtype, backend: str) -> bool:
    """Return whether a model of this compute type trains with fused attention on this backend."""
    if backend != "gpu" or dtype != jnp.bfloat16 or config.sink:
        return False
    head_width = config.width // config.heads
    if head_width > WIDEST_HEAD or head_width % HEAD_MULTIPLE:
        return False
    if MASKS[config.mask].fused is None or not _has_fused_attention():
        return False
    # The zero key that softmax_one prepends would leave a sliding window.
    if config.attention == "softmax_one":
        return "local_window_size" not in MASKS[config.mask].fused(config)
    return config.attention == "softmax"


def _has_fused_attention() -> bool:
    """Return whether the first GPU is an NVIDIA card that cuDNN's fused attention runs on."""
    capability = getattr(jax.devices()[0], "compute_capability", "0.0")
    parts = str(capability).split(".")
    if not all(part.isdigit() for part in parts):  # AMD cards have names such as gfx90a
        return False
    return tuple(map(int, parts)) >= OLDEST_GPU


def fused_attend(
    q_BTHK: Float[Array, "B T H K"],
    k_BTHK: Float[Array, "B T H K"],
    v_BTHK: Float[Array, "B T H K"],
    config: ModelConfig,
    implementation: str = "cudnn",
) -> Float[Array, "B T H K"]:
    """Mix values by the attention weights of the configured mask and of softmax or softmax_one.

    For configurations that `is_supported`. `implementation` "xla" runs the same without a GPU.
    """
    settings: dict[str, Any] = MASKS[config.mask].fused(config) | {"implementation": implementation}
    if config.attention == "softmax":
        return jax.nn.dot_product_attention(q_BTHK, k_BTHK, v_BTHK, **settings)
    # exp(s_j) / (1 + sum_j exp(s_j)) is the softmax over the keys and a zero key with a zero value.
    # It goes first, with a query of its own, so that a causal mask shows it to every query.
    padded = (
        jnp.pad(x_BTHK, ((0, 0), (1, 0), (0, 0), (0, 0))) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK)
    )
    return jax.nn.dot_product_attention(*padded, **settings)[:, 1:]
