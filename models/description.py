"""Describe a model in words."""

import dataclasses

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks
from anisoscope.models.attention_block import ATTENTIONS
from anisoscope.models.norms import NORMS
from anisoscope.models.positions import POSITIONS


def describe_model(model: ModelConfig) -> str:
    """Describe a model; features of GPT-2 are left out."""
    words = [
        masks.describe_mask(model),
        NORMS[model.norm].label,
        f"{model.layers} layer{'s' * (model.layers > 1)}",
    ]
    words += [f"D={model.width}", f"H={model.heads}", f"T={model.context}"]
    words += [f"F={model.expansion}D"] * (model.expansion != 4) + [
        POSITIONS[model.position_encoding].label
    ]
    words += [model.activation] * (model.activation != ModelConfig().activation)
    words += ["untied"] * (not model.tied) + ["no biases"] * (not model.bias)
    words += [ATTENTIONS[model.attention].label] + ["query-key norm"] * model.qk_norm
    words += ["queries centered"] * model.center_queries + ["sink"] * model.sink
    words += ["first token always [MASK]"] * model.same_first
    return ", ".join(word for word in words if word)


def described_fields() -> tuple[str, ...]:
    """List the fields of ModelConfig that a description contains: all that change the function."""
    left_out = {*masks.seeds(), "remat", "dtype"}
    return tuple(
        field.name for field in dataclasses.fields(ModelConfig) if field.name not in left_out
    )
