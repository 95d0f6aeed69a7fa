"""Train, measure and draw: python main.py --config=experiments/decoder_small.py [--config.train.steps=100 …]"""

import logging
import pathlib
import re
import sys

import absl.logging
from absl import flags

import experiments.flags
import pretrained.config
import untrained.config
from experiments import variants
from experiments.config import Config, check
from workdir.errors import RunError, Stopped, UserError

STAGES = ("train", "measure", "figures")


def main(argv: list[str]) -> int:
    """The exit code: 0 done, or stopped when asked to; 1 a run that cannot go on; 2 bad input; 130 interrupted."""
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is told in one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    try:
        words, settings = experiments.flags.split(argv)
        given = parse(words)
        if given.help:
            print(f"{__doc__}\n\n{given.get_help()}")
            return 0
        experiment = experiments.flags.override(experiments.flags.load(given.config), settings)
        if isinstance(experiment, untrained.config.UntrainedConfig):
            run_untrained(experiment, given)
        elif isinstance(experiment, pretrained.config.PretrainedConfig):
            run_pretrained(experiment, given)
        else:
            run(experiment, given, settings)
        return 0
    except (flags.Error, UserError) as error:
        return fail(error, 2)
    except (RunError, OSError) as error:
        return fail(error, 1)
    except Stopped as stopped:
        print(f"{stopped}; the same command goes on from there")
        return 0
    except KeyboardInterrupt:
        return fail("interrupted; the same command goes on from the last checkpoint", 130)


def fail(error: Exception | str, code: int) -> int:
    print(f"error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return code


def parse(words: list[str]) -> flags.FlagValues:
    """The flags beside the experiment's settings; UserError or flags.Error, one line, where they are wrong."""
    given = flags.FlagValues()
    flags.DEFINE_string("config", None, "Experiment file, as experiments/decoder_small.py or …:tiny.", given)
    flags.DEFINE_string("workdir", None, "Folder of the run; runs/<experiment> where not given.", given)
    flags.DEFINE_list("stages", list(STAGES), f"Which of {', '.join(STAGES)} to do.", given)
    flags.DEFINE_bool("distributed", False, "Join the other processes of the cluster (TPU pod, SLURM, MPI).", given)
    flags.DEFINE_list("compare", [], "Folders of other runs to draw in the same figures.", given)
    flags.DEFINE_bool("help", False, "Show this.", given)
    left = given(words)
    if given.help:
        return given
    if len(left) > 1:
        raise UserError(f"{left[1]!r} is not a flag; see main.py --help")
    if given.config is None:
        raise UserError("no experiment given; pass --config=experiments/quickstart.py, say")
    if not given.stages:
        raise UserError(f"--stages names no stage; choose from {', '.join(STAGES)}")
    for stage in given.stages:
        if stage not in STAGES:
            raise UserError(f"--stages: {stage!r} is unknown; choose from {', '.join(STAGES)}")
    return given


def run(experiment: Config, given: flags.FlagValues, settings: dict[str, str | None]) -> None:
    configs = variants.expand(experiment, settings)
    for config in configs.values():
        check(config)

    # Imported late: a wrong setting should be told without waiting for JAX.
    import stages
    from workdir import mesh

    if given.distributed:
        stages.join_cluster()
    else:
        mesh.take_cores_for_devices(stages.units(experiment))
    stages.keep_compiled(experiment.data.cache)
    title = experiment_name(given.config)
    root = pathlib.Path(given.workdir or f"runs/{title}")
    experiment, configs = stages.resolve_types(experiment, configs, root)
    shown = stages.named(configs, root, title, given.compare)
    if {"train", "measure"} & set(given.stages):
        stages.work(experiment, configs, root, title, given.stages)
    if "figures" in given.stages:
        stages.check_folders(experiment, configs, root, new=False)
        stages.draw_figures(shown, root / "figures")


def run_untrained(config: untrained.config.UntrainedConfig, given: flags.FlagValues) -> None:
    """Blocks that nothing trains: of the stages, there is nothing to do in `train`."""
    untrained.config.check(config)
    for name in ("compare", "distributed"):
        if given[name].value:
            raise UserError(f"--{name} is for training runs; leave it out with an experiment on untrained blocks")
    if given.stages == ["train"]:
        raise UserError("--stages=train: untrained blocks are not trained; choose from measure, figures")
    import stages  # late, as in `run`

    stages.keep_compiled()
    title = experiment_name(given.config)
    stages.untrained_blocks(config, pathlib.Path(given.workdir or f"runs/{title}"), title, given.stages)


def run_pretrained(config: pretrained.config.PretrainedConfig, given: flags.FlagValues) -> None:
    """A model that others trained: of the stages, there is nothing to do in `train`."""
    pretrained.config.check(config)
    for name in ("compare", "distributed"):
        if given[name].value:
            raise UserError(f"--{name} is for training runs; leave it out with a pretrained model")
    if given.stages == ["train"]:
        raise UserError("--stages=train: a pretrained model is not trained; choose from measure, figures")
    import stages  # late, as in `run`
    from workdir import mesh

    mesh.take_cores_for_devices(len(stages.POSITION_SETS))
    stages.keep_compiled(config.data.cache)
    title = experiment_name(given.config)
    stages.pretrained_model(config, pathlib.Path(given.workdir or f"runs/{title}"), title, given.stages)


def experiment_name(config: str) -> str:
    """Stem of the experiment file, with its argument, as a folder may be called: decoder_small.py:tiny ->
    decoder_small_tiny, pretrained.py:EleutherAI/pythia-160m -> pretrained_EleutherAI_pythia-160m, and of a path its
    end."""
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv))
