"""Recipes of training by name: matched_pair_small.py:tiny,gpt2 is the size tiny with the recipe
gpt2.
"""

from typing import Any, TypeVar

from anisoscope.config.experiment_config import Config
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import replace

# All have a rate that stays, and a decay at the end alone: checkpoints of different steps are in
# the same phase.
SCHEDULE = {"train.schedule": "constant"}
RECIPES: dict[str, dict[str, Any]] = {
    # what the models of the papers had
    "gpt2": {"train.optimizer": "adamw", "model.positions": "learned"} | SCHEDULE,
    "rotary": {"train.optimizer": "adamw", "model.positions": "rotary"} | SCHEDULE,
    "muon": {"train.optimizer": "muon", "train.learning_rate": 0.02, "model.positions": "rotary"}
    | SCHEDULE,
    "sgd": {  # the rest at the rate that it has beside Muon
        **{
            "train.optimizer": "sgd",
            "train.learning_rate": 0.03,
            "train.rest_learning_rate": 0.002,
        },
        **{"model.positions": "rotary"} | SCHEDULE,
    },
}
Chosen = TypeVar("Chosen")  # the config of a kind of experiment
# what learned most in 300 steps of a tiny decoder and encoder (docs/explanation/decisions.md)
DEFAULT = "muon"


def sized(argument: str, sizes: dict[str, Config], default: str = DEFAULT) -> Config:
    """The config of SIZE, or of SIZE,RECIPE."""
    size, comma, recipe = argument.partition(",")
    config = chosen(size, sizes)
    if comma and recipe not in RECIPES:
        hint = did_you_mean(recipe, RECIPES)
        raise UserError(f"recipe {recipe!r} is unknown; choose one of {', '.join(RECIPES)}{hint}")
    return replace(config, RECIPES[recipe or default])


def chosen(size: str, sizes: dict[str, Chosen]) -> Chosen:
    """The config of a size without recipes, as where recipes are what varies."""
    if size not in sizes:
        names = " or ".join(name for name in sizes if name) + (
            ", or leave it out" if "" in sizes else ""
        )
        raise UserError(
            f"experiment size {size!r} is unknown; choose {names}{did_you_mean(size, sizes)}"
        )
    return sizes[size]
