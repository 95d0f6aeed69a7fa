"""Check the settings of a model, and describe it in words.

Masks and attention variants add checks of their own.
"""

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks
from anisoscope.models.attention_block import ATTENTIONS
from anisoscope.models.layers import ACTIVATIONS, NORM_PLACES, POSITIONS
from anisoscope.models.masks import MASKS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose


def check_model(model: ModelConfig) -> None:
    """Raise UserError, one line, where a model cannot be built."""
    kinds = {
        "mask": MASKS,
        "attention": ATTENTIONS,
        "norm": NORM_PLACES,
        "position_encoding": POSITIONS,
    }
    for name, entries in (kinds | {"activation": ACTIVATIONS}).items():
        choose(f"model.{name}", getattr(model, name), entries)
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    width = model.width // model.heads
    if POSITIONS[model.position_encoding].rotate and width % 2:
        what = f"model.position_encoding={model.position_encoding} needs an even head width"
        raise UserError(f"{what}; width/heads is {width}")
    if model.sink and not ATTENTIONS[model.attention].sink:
        raise UserError(
            f"model.sink adds a key to softmax, not to attention={model.attention}; set model.attention=softmax"
        )
    _check_mask(model)


def _check_mask(model: ModelConfig) -> None:
    if setting := MASKS[model.mask].setting:
        value, most = getattr(model, setting.name), setting.most
        limit, words = (
            (getattr(model, most), f"model.{most}=") if isinstance(most, str) else (most, "")
        )
        if not setting.least <= value <= limit:
            needs = f"model.mask={model.mask} needs {setting.least} to {words}{limit}"
            raise UserError(f"model.{setting.name} is {value}; {needs}")
    for name in masks.list_unused_settings(model):
        if name not in masks.mask_seeds() and getattr(model, name) != 0:
            owners = [
                key for key, mask in MASKS.items() if mask.setting and mask.setting.name == name
            ]
            what = f"model.{name} has no effect under model.mask={model.mask}"
            raise UserError(f"{what}; leave it 0 or set mask={' or '.join(owners)}")


def describe_model(model: ModelConfig) -> str:
    """Describe a model; features of GPT-2 are left out."""
    words = [
        masks.describe_mask(model),
        NORM_PLACES[model.norm].label,
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
