"""What a model's settings may be. Of a mask, an attention variant, positions or norms, their entry is asked."""

from anisoscope.config.model import ModelConfig
from anisoscope.models import masks
from anisoscope.models.attention import ATTENTIONS
from anisoscope.models.linear import ACTIVATIONS
from anisoscope.models.masks import MASKS
from anisoscope.models.norms import NORMS
from anisoscope.models.positions import POSITIONS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, at_least, choose, within

DTYPES = ("auto", "float32", "bfloat16")


def check_model(model: ModelConfig) -> None:
    """Raise UserError, one line, where a model cannot be built."""
    choose("model.mask", model.mask, MASKS)
    choose("model.attention", model.attention, ATTENTIONS)
    choose("model.norm", model.norm, NORMS)
    choose("model.positions", model.positions, POSITIONS)
    choose("model.activation", model.activation, ACTIVATIONS)
    choose("model.dtype", model.dtype, DTYPES)
    for name, least in (("layers", 1), ("width", 1), ("heads", 1), ("context", 2), ("expansion", 1)):
        at_least(f"model.{name}", value := getattr(model, name), least)
        if value >= 2**31:
            raise UserError(f"model.{name} is {value}; it must be below 2^31")
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    POSITIONS[model.positions].check(model)
    if model.sink and not ATTENTIONS[model.attention].sink:
        raise UserError(f"model.sink is one more key of a softmax; it does not go with attention={model.attention}")
    _check_mask(model)


def _check_mask(model: ModelConfig) -> None:
    for name in masks.seeds():
        within(f"model.{name}", getattr(model, name), 0, LARGEST_SEED)
    if setting := MASKS[model.mask].setting:
        value, most = getattr(model, setting.name), setting.most
        limit, words = (getattr(model, most), f"model.{most}=") if isinstance(most, str) else (most, "")
        if not setting.least <= value <= limit:
            needs = f"model.mask={model.mask} needs {setting.least} to {words}{limit}"
            raise UserError(f"model.{setting.name} is {value}; {needs}")
    for name in masks.idle(model):
        if name not in masks.seeds() and getattr(model, name) != 0:
            owners = " or ".join(mask for mask, entry in MASKS.items() if entry.setting and entry.setting.name == name)
            raise UserError(f"model.{name} does nothing under model.mask={model.mask}; leave it 0 or set mask={owners}")
