"""Training recipes (`:tiny,gpt2` is the size tiny with the recipe gpt2), and an experiment's runs."""

from collections.abc import Iterable
from typing import Any, TypeVar

from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import seed_pairs
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

VARIED_SEEDS = {"train.seed", "train.data_seed"}
Chosen = TypeVar("Chosen")  # an experiment's config class
# The learning rate decays only at the end, so that all checkpoints before are in the same phase.
SCHEDULE = {"train.schedule": "constant"}
ROTARY = {"model.position_encoding": "rotary"} | SCHEDULE
RECIPES: dict[str, dict[str, Any]] = {
    # as the papers' models were trained
    "gpt2": {"train.optimizer": "adamw", "model.position_encoding": "learned"} | SCHEDULE,
    "rotary": {"train.optimizer": "adamw"} | ROTARY,
    "muon": {"train.optimizer": "muon", "train.learning_rate": 0.02} | ROTARY,
    # embedding, biases and norms have the same learning rate as with Muon
    "sgd": {
        "train.optimizer": "sgd",
        "train.learning_rate": 0.03,
        "train.other_learning_rate": 0.002,
    }
    | ROTARY,
}
# lowest loss after 300 steps of a tiny decoder and encoder (docs/explanation/decisions.md)
DEFAULT = "muon"


def select_size_and_recipe(
    argument: str, sizes: dict[str, Config], default: str = DEFAULT
) -> Config:
    """Make the config of SIZE, or of SIZE,RECIPE."""
    size, comma, recipe = argument.partition(",")
    config = select_size(size, sizes)
    if comma and recipe not in RECIPES:
        raise UserError(f"recipe {recipe!r} is unknown; choose one of {', '.join(RECIPES)}")
    return replace(config, RECIPES[recipe or default])


def select_size(size: str, sizes: dict[str, Chosen]) -> Chosen:
    """Return the config of a size, without applying a recipe."""
    if size not in sizes:
        names = " or ".join(filter(None, sizes)) + (", or omit it" if "" in sizes else "")
        raise UserError(f"experiment size {size!r} is unknown; choose {names}")
    return sizes[size]


def expand(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """Expand an experiment into its runs: {name: config of a single run}.

    Args:
        config: The experiment. Without variants and with a single seed, its only run is named ''.
        overridden: Settings on the command line. A setting that variants change is rejected.
    """
    runs = {}
    for variant, varied in groups(config, overridden).items():
        for name, run in run_names(variant, single_runs(varied)).items():
            if name in runs:
                what = f"two runs of this experiment are named {name}"
                raise UserError(f"{what}; rename the variant {variant}")
            runs[name] = run
    return runs


def with_seeds(
    conditions: dict[str, dict[str, Any]], numbers: Iterable[int]
) -> dict[str, dict[str, Any]]:
    """Make a variant of each condition with each seed: {"causal_2": changes, …}."""
    return {
        f"{name}_{seed}": changes | {"train.seed": seed}
        for seed in numbers
        for name, changes in conditions.items()
    }


def matched_contrasts(
    pairs: dict[str, tuple[str, str]], margins: dict[str, float]
) -> dict[str, dict[str, Any]]:
    """Name the loss-matched contrasts of pairs of conditions, each with its margin."""
    return {
        f"{quantity.removeprefix('last_')}_{name}": {"quantity": quantity, "before": before}
        | {"after": after, "at": "matched", "margin": margin}
        for quantity, margin in margins.items()
        for name, (before, after) in pairs.items()
    }


def run_names(variant: str, configs: dict[str, Config]) -> dict[str, Config]:
    """Name the runs of a variant as their folders are named."""
    return {"_".join(filter(None, (variant, seed))): config for seed, config in configs.items()}


def single_runs(config: Config) -> dict[str, Config]:
    """Make a config for each weight seed with each data seed: {"weights_0_data_0": config, …}.

    The configs differ only in their seeds and are trained together. A single seed is named ''.
    """
    pairs = seed_pairs(config.train)
    if len(pairs) == 1:
        return {"": config}
    single = {"train.num_seeds": 1, "train.num_data_seeds": None}
    return {
        seed_name(*pair): replace(
            config, single | {"train.seed": pair[0], "train.data_seed": pair[1]}
        )
        for pair in pairs
    }


def seed_name(weights: int, data: int) -> str:
    """Name the run of a weight seed and a data seed."""
    return f"weights_{weights}_data_{data}"


def groups(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """Expand an experiment into its variants with all their seeds; without variants the name is ''.

    Either the variants set seeds or a number of seeds is set, not both: variants with seeds 0 and 1
    and two seeds each would run seed 1 twice.
    """
    if not config.variants:
        return {"": replace(config, {"primary": {}})}
    configs = {}
    for name, changes in config.variants.items():
        what = f"variant {name!r}"
        if not name.isidentifier() or name == "figures":
            advice = "use letters, digits and _, and not the word figures"
            raise UserError(f"{what} cannot be the name of a folder; {advice}")
        if varied := changes.keys() & {*overridden}:
            why = "differs between the runs of this experiment; omit it"
            raise UserError(f"--config.{min(varied)} {why}")
        try:
            configs[name] = replace(config, {"variants": {}, "primary": {}} | changes)
        except UserError as error:
            raise UserError(f"{what}: {error}") from error
        for count in ("num_seeds", "num_data_seeds"):
            value = getattr(configs[name].train, count) or 1
            if VARIED_SEEDS & changes.keys() and f"train.{count}" not in changes and value > 1:
                why = f"but {what} sets its own seed; omit either"
                raise UserError(f"train.{count} is {value}, {why}")
    return configs
