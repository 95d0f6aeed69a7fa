"""Recipes of training by name: twins_small.py:tiny,muon is the size tiny with the recipe muon."""

from typing import Any

from experiments.config import Config
from workdir.errors import UserError, meant
from workdir.settings import replace

RECIPES: dict[str, dict[str, Any]] = {
    "gpt2": {"train.optimizer": "adamw", "model.positions": "learned"},  # what the models of the papers had
    "rotary": {"train.optimizer": "adamw", "model.positions": "rotary"},
    "muon": {"train.optimizer": "muon", "train.learning_rate": 0.02, "model.positions": "rotary"},
    "sgd": {  # the rest at the rate that it has beside Muon
        **{"train.optimizer": "sgd", "train.learning_rate": 0.1, "train.rest_learning_rate": 0.002},
        "model.positions": "rotary",
    },
}


def sized(argument: str, sizes: dict[str, Config]) -> Config:
    """The config of SIZE, or of SIZE,RECIPE; without a recipe that of the size."""
    size, _, recipe = argument.partition(",")
    if size not in sizes:
        raise UserError(f"experiment size {size!r} is unknown; choose {' or '.join(sizes)}{meant(size, sizes)}")
    if recipe and recipe not in RECIPES:
        raise UserError(f"recipe {recipe!r} is unknown; choose one of {', '.join(RECIPES)}{meant(recipe, RECIPES)}")
    return replace(sizes[size], RECIPES.get(recipe, {}))
