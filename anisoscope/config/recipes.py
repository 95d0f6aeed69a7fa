"""Named training recipes: `:tiny,gpt2` is the size tiny with the recipe gpt2."""

from typing import Any, TypeVar

from anisoscope.config.experiment_config import Config
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

# The learning rate decays only at the end, so that all checkpoints before are in the same phase.
SCHEDULE = {"train.schedule": "constant"}
ROTARY = {"model.position_encoding": "rotary"} | SCHEDULE
RECIPES: dict[str, dict[str, Any]] = {
    # as the papers' models were trained
    "gpt2": {"train.optimizer": "adamw", "model.position_encoding": "learned"} | SCHEDULE,
    "rotary": {"train.optimizer": "adamw"} | ROTARY,
    "muon": {"train.optimizer": "muon", "train.learning_rate": 0.02} | ROTARY,
    # embedding, biases and norms have the learning rate that they have with Muon
    "sgd": {
        "train.optimizer": "sgd",
        "train.learning_rate": 0.03,
        "train.other_learning_rate": 0.002,
    }
    | ROTARY,
}
Chosen = TypeVar("Chosen")  # an experiment's config class
# lowest loss after 300 steps of a tiny decoder and encoder (docs/explanation/decisions.md)
DEFAULT = "muon"


def sized(argument: str, sizes: dict[str, Config], default: str = DEFAULT) -> Config:
    """Make the config of SIZE, or of SIZE,RECIPE."""
    size, comma, recipe = argument.partition(",")
    config = chosen(size, sizes)
    if comma and recipe not in RECIPES:
        raise UserError(f"recipe {recipe!r} is unknown; choose one of {', '.join(RECIPES)}")
    return replace(config, RECIPES[recipe or default])


def chosen(size: str, sizes: dict[str, Chosen]) -> Chosen:
    """Return the config of a size, without applying a recipe."""
    if size not in sizes:
        names = " or ".join(filter(None, sizes)) + (", or omit it" if "" in sizes else "")
        raise UserError(f"experiment size {size!r} is unknown; choose {names}")
    return sizes[size]
