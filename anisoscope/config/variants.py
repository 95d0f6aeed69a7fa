"""The runs of an experiment: its variants, and of each the seeds, every weight seed with every data
seed.
"""

from collections.abc import Iterable

from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import seeds
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

SEEDS = {"train.seed", "train.data_seed"}


def expand(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """The runs of an experiment, variants × seeds: {name: single-run Config}; a plain config is the
    one run named ''.

    A field that the variants set must not be among the `overridden`: it would have no effect.
    """
    runs = {}
    for variant, varied in groups(config, overridden).items():
        for name, run in run_names(variant, of_seeds(varied)).items():
            if name in runs:
                raise UserError(
                    f"two runs of this experiment are named {name}; rename the variant {variant}"
                )
            runs[name] = run
    return runs


def run_names(variant: str, configs: dict[str, Config]) -> dict[str, Config]:
    """The seeds of a variant by the names of their runs, which are those of their folders."""
    return {"_".join(filter(None, (variant, seed))): config for seed, config in configs.items()}


def of_seeds(config: Config) -> dict[str, Config]:
    """Every weight seed with every data seed of a variant, as single runs: {"weights_0_data_0":
    Config, …}.

    They differ in seeds alone and are trained together. A config of one seed is its own only run,
    named ''.
    """
    pairs = seeds(config.train)
    if len(pairs) == 1:
        return {"": config}
    single = {"train.num_seeds": 1, "train.num_data_seeds": None}
    return {
        seed_name(weights, data): replace(
            config, single | {"train.seed": weights, "train.data_seed": data}
        )
        for weights, data in pairs
    }


def seed_name(weights: int, data: int) -> str:
    return f"weights_{weights}_data_{data}"


def groups(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """The variants of an experiment, each of one seed or several: {name: Config}; a plain config is
    named ''.

    Seeds are counted by the variants or from those that they set, not both: with seeds 0 and 1 set,
    two of each would be 0, 1 and 1, 2, and a run of seed 1 would be there twice.
    """
    if not config.variants:
        return {"": replace(config, {"primary": {}})}
    configs = {}
    for name, changes in config.variants.items():
        if not name.isidentifier() or name == "figures":
            raise UserError(
                f"variant {name!r}: a run's name becomes a folder; use letters, digits and _, not figures"
            )
        if not isinstance(changes, dict):
            raise UserError(
                f"variant {name!r} is {changes!r}; it must be settings by their dotted names"
            )
        for path in changes:
            if path in overridden:
                raise UserError(
                    f"--config.{path} differs between the runs of this experiment and cannot be overridden"
                )
        try:
            configs[name] = replace(config, {"variants": {}, "primary": {}} | changes)
        except UserError as error:
            raise UserError(f"variant {name!r}: {error}") from error
        for count in ("num_seeds", "num_data_seeds"):
            given = getattr(configs[name].train, count)
            if (
                SEEDS & changes.keys()
                and f"train.{count}" not in changes
                and given is not None
                and given > 1
            ):
                words = f"but variant {name!r} sets its own seed; leave one of them out"
                raise UserError(f"train.{count} is {given}, {words}")
    return configs
