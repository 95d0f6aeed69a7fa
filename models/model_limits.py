"""Check the settings of a model; masks, attention variants, positions and norms add their own."""

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks
from anisoscope.models.attention_block import ATTENTIONS
from anisoscope.models.linear import ACTIVATIONS
from anisoscope.models.masks import MASKS
from anisoscope.models.norms import NORMS
from anisoscope.models.positions import POSITIONS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, choose


def check_model(model: ModelConfig) -> None:
    """Raise UserError, one line, where a model cannot be built."""
    check_fields(model, "model.")
    kinds = {"mask": MASKS, "attention": ATTENTIONS, "norm": NORMS, "position_encoding": POSITIONS}
    for name, entries in (kinds | {"activation": ACTIVATIONS}).items():
        choose(f"model.{name}", getattr(model, name), entries)
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    POSITIONS[model.position_encoding].check(model)
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
        if name not in masks.seeds() and getattr(model, name) != 0:
            owners = " or ".join(
                mask
                for mask, entry in MASKS.items()
                if entry.setting and entry.setting.name == name
            )
            raise UserError(
                f"model.{name} has no effect under model.mask={model.mask}; leave it 0 or set mask={owners}"
            )
