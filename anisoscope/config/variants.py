"""The runs of an experiment: its variants, and of each every weight seed with every data seed."""

from collections.abc import Iterable

from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import seeds
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

SEEDS = {"train.seed", "train.data_seed"}


def expand(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """Expand an experiment into its runs, variants × seeds: {name: config of a single run}.

    Args:
        config: The experiment. One without variants and with one seed is the only run, named ''.
        overridden: Settings on the command line; one that variants set would have no effect.
    """
    runs = {}
    for variant, varied in groups(config, overridden).items():
        for name, run in run_names(variant, single_runs(varied)).items():
            if name in runs:
                what = f"two runs of this experiment are named {name}"
                raise UserError(f"{what}; rename the variant {variant}")
            runs[name] = run
    return runs


def run_names(variant: str, configs: dict[str, Config]) -> dict[str, Config]:
    """Name the runs of a variant's seeds as their folders are named."""
    return {"_".join(filter(None, (variant, seed))): config for seed, config in configs.items()}


def single_runs(config: Config) -> dict[str, Config]:
    """Make a config for each weight seed with each data seed: {"weights_0_data_0": config, …}.

    They differ in seeds alone and are trained together. A single seed is named ''.
    """
    pairs = seeds(config.train)
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
    """Expand an experiment into its variants, each of one seed or several; a plain config is ''.

    Seeds are counted by the variants or from those that they set, not both: with seeds 0 and 1 set,
    two of each would be 0, 1 and 1, 2, and a run of seed 1 would exist twice.
    """
    if not config.variants:
        return {"": replace(config, {"primary": {}})}
    configs = {}
    for name, changes in config.variants.items():
        what = f"variant {name!r}"
        if not name.isidentifier() or name == "figures":
            advice = "use letters, digits and _, not figures"
            raise UserError(f"{what}: a run's name becomes a folder; {advice}")
        if not isinstance(changes, dict):
            raise UserError(f"{what} is {changes!r}; it must be settings by their dotted names")
        if varied := changes.keys() & {*overridden}:
            why = "differs between the runs of this experiment and cannot be overridden"
            raise UserError(f"--config.{min(varied)} {why}")
        try:
            configs[name] = replace(config, {"variants": {}, "primary": {}} | changes)
        except UserError as error:
            raise UserError(f"{what}: {error}") from error
        for count in ("num_seeds", "num_data_seeds"):
            value = getattr(configs[name].train, count) or 1
            if SEEDS & changes.keys() and f"train.{count}" not in changes and value > 1:
                why = f"but {what} sets its own seed; leave one of them out"
                raise UserError(f"train.{count} is {value}, {why}")
    return configs
