"""Train, measure and draw: python main.py --config=experiments/decoder_small.py [--config.train.steps=100 …]"""

import logging
import pathlib
import sys

import absl.logging
from absl import app, flags

import experiments.flags
import untrained.config
from experiments import variants
from experiments.config import Config, check
from workdir.errors import RunError, Stopped, UserError

STAGES = ("train", "measure", "figures")

CONFIG = flags.DEFINE_string("config", None, "Experiment file, as experiments/decoder_small.py or …:tiny.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; runs/<experiment> where not given.")
WANTED = flags.DEFINE_list("stages", list(STAGES), f"Which of {', '.join(STAGES)} to do.")
DISTRIBUTED = flags.DEFINE_bool("distributed", False, "Join the other processes of the cluster (TPU pod, SLURM, MPI).")
COMPARE = flags.DEFINE_list("compare", [], "Folders of other runs to draw in the same figures.")

given: dict[str, str | None] = {}  # --config.GROUP.FIELD=TEXT, as the command line has them


def parse(argv: list[str]) -> list[str]:
    """Parse the flags; whatever is wrong with them is one line and exit code 2."""
    try:
        rest, settings = experiments.flags.split(argv)
        given.update(settings)
        left = flags.FLAGS(rest)
        if len(left) > 1:
            raise UserError(f"{left[1]!r} is not a flag; see main.py --help")
        if CONFIG.value is None:
            raise UserError("no experiment given; pass --config=experiments/quickstart.py, say")
        if not WANTED.value:
            raise UserError(f"--stages names no stage; choose from {', '.join(STAGES)}")
        for stage in WANTED.value:
            if stage not in STAGES:
                raise UserError(f"--stages: {stage!r} is unknown; choose from {', '.join(STAGES)}")
        return left
    except (flags.Error, UserError) as error:
        sys.exit(fail(error, 2))


def fail(error: BaseException, code: int) -> int:
    lines = str(error).strip().splitlines()
    print(f"error: {lines[-1].strip() if lines else type(error).__name__}", file=sys.stderr)
    return code


def main(_: list[str]) -> int:
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is told in one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    try:
        return run(experiments.flags.override(experiments.flags.load(CONFIG.value), given))
    except UserError as error:
        return fail(error, 2)
    except (RunError, OSError) as error:
        return fail(error, 1)
    except Stopped as stopped:
        print(f"{stopped}; the same command goes on from there")
        return 0
    except KeyboardInterrupt:
        return fail(KeyboardInterrupt("interrupted; the same command goes on from the last checkpoint"), 130)


def run(experiment: Config | untrained.config.UntrainedConfig) -> int:
    if isinstance(experiment, untrained.config.UntrainedConfig):
        return run_untrained(experiment)
    configs = variants.expand(experiment, given)
    for config in configs.values():
        check(config)

    # Imported late: a wrong setting should be told without waiting for JAX.
    import stages

    if DISTRIBUTED.value:
        stages.join_cluster()
    title = _experiment_name()
    root = pathlib.Path(WORKDIR.value or f"runs/{title}")
    experiment, configs = stages.resolve_types(experiment, configs, root)
    shown = stages.named(configs, root, title, COMPARE.value)
    if {"train", "measure"} & set(WANTED.value):
        stages.work(experiment, configs, root, title, WANTED.value)
    if "figures" in WANTED.value:
        stages.check_folders(experiment, configs, root, new=False)
        stages.draw_figures(shown, root / "figures")
    return 0


def run_untrained(config: untrained.config.UntrainedConfig) -> int:
    """Blocks that nothing trains: of the stages, there is nothing to do in `train`."""
    untrained.config.check(config)
    for name, given in (("compare", COMPARE.value), ("distributed", DISTRIBUTED.value)):
        if given:
            raise UserError(f"--{name} is for training runs; leave it out with an experiment on untrained blocks")
    if WANTED.value == ["train"]:
        raise UserError("--stages=train: untrained blocks are not trained; choose from measure, figures")
    import stages  # late, as in `run`

    title = _experiment_name()
    stages.untrained_blocks(config, pathlib.Path(WORKDIR.value or f"runs/{title}"), title, WANTED.value)
    return 0


def _experiment_name() -> str:
    """Stem of the experiment file, with its argument: decoder_small.py:tiny -> decoder_small_tiny."""
    path, _, argument = CONFIG.value.partition(":")
    return "_".join(filter(None, (pathlib.Path(path).stem, argument)))


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
