"""Train, measure and draw: python main.py --config=experiments/decoder_small.py [--config.train.steps=100 …]"""

import dataclasses
import difflib
import logging
import pathlib
import re
import sys

import absl.logging
from absl import app, flags
from ml_collections import config_flags

from errors import RunError, Stopped, UserError
from experiments import untrained, variants
from experiments.base import Config
from experiments.limits import validate

STAGES = ("train", "measure", "figures")

CONFIG = config_flags.DEFINE_config_file("config", None, "Experiment file, as experiments/decoder_small.py.")
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run; runs/<experiment> where not given.")
WANTED = flags.DEFINE_list("stages", list(STAGES), f"Which of {', '.join(STAGES)} to do.")
DISTRIBUTED = flags.DEFINE_bool("distributed", False, "Join the other processes of the cluster (TPU pod, SLURM, MPI).")
COMPARE = flags.DEFINE_list("compare", [], "Folders of other runs to draw in the same figures.")


def parse(argv: list[str]) -> list[str]:
    """Parse the flags; whatever is wrong with them is one line and exit code 2."""
    try:
        check_overrides(argv)
        left = flags.FLAGS(argv)
        if len(left) > 1:
            raise UserError(f"{left[1]!r} is not a flag; see main.py --help")
        if flags.FLAGS["config"].value is None:
            raise UserError("no experiment given; pass --config=experiments/quickstart.py, say")
        dataclasses.fields(CONFIG.value)  # an unreadable file raises only when it is looked at
        if not WANTED.value:
            raise UserError(f"--stages names no stage; choose from {', '.join(STAGES)}")
        for stage in WANTED.value:
            if stage not in STAGES:
                raise UserError(f"--stages: {stage!r} is unknown; choose from {', '.join(STAGES)}")
        return left
    except (flags.Error, UserError, AttributeError, KeyError, TypeError, ValueError, OSError, ImportError) as error:
        sys.exit(fail(error, 2))
    except SyntaxError as error:
        sys.exit(fail(UserError(f"{error.filename}, line {error.lineno}: {error.msg}"), 2))


def check_overrides(argv: list[str]) -> None:
    """Every --config.GROUP.FIELD must lead to a setting; ml_collections tells in Python's words where one does not."""
    line = "\0".join(argv)
    given = re.search(r"\0--?config[=\0]([^\0]+)", line)
    experiment = flags.FLAGS["config"].parser.parse(given[1]) if given else None
    if not dataclasses.is_dataclass(experiment):
        return
    for path in re.findall(r"\0--?(?:no)?config\.([^=\0]+)", line):
        value = experiment
        for name in path.split("."):
            if not dataclasses.is_dataclass(value):
                raise UserError(f"--config.{path}: what stands before {name!r} is a single setting, it has no fields")
            names = [field.name for field in dataclasses.fields(value)]
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names)}"
                raise UserError(f"--config.{path}: there is no config field {name!r}; {hint}")
            value = getattr(value, name)
            if isinstance(value, dict):
                raise UserError(f"--config.{path}: the runs of an experiment are set in its file, not by flags")
        if dataclasses.is_dataclass(value):
            names = ", ".join(field.name for field in dataclasses.fields(value))
            raise UserError(f"--config.{path} is a group of settings; set one of them: {names}")


def fail(error: BaseException, code: int) -> int:
    lines = str(error.args[0] if isinstance(error, KeyError) and error.args else error).strip().splitlines()
    line = lines[-1].strip() if lines else type(error).__name__
    if "Non-boolean argument" in line:
        line = f"{line.partition(': (')[0]}: choose true or false"
    if "get_config() takes" in line:
        line = "--config: this experiment takes no size after ':'"
    if "has no attribute 'get_config'" in line:
        line = "--config: the file is no experiment, it defines no get_config()"
    print(f"error: {line}", file=sys.stderr)
    return code


def main(_: list[str]) -> int:
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is told in one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    try:
        return run(CONFIG.value)
    except UserError as error:
        return fail(error, 2)
    except (RunError, OSError) as error:
        return fail(error, 1)
    except Stopped as stopped:
        print(f"{stopped}; the same command goes on from there")
        return 0
    except KeyboardInterrupt:
        return fail(KeyboardInterrupt("interrupted; the same command goes on from the last checkpoint"), 130)


def run(experiment: Config | untrained.UntrainedConfig) -> int:
    if isinstance(experiment, untrained.UntrainedConfig):
        return run_untrained(experiment)
    configs = variants.expand(experiment, config_flags.get_override_values(flags.FLAGS["config"]))
    for config in configs.values():
        validate(config)

    # Imported late: a wrong setting should be told without waiting for JAX.
    import stages

    if DISTRIBUTED.value:
        stages.join_cluster()
    title = _experiment_name()
    root = pathlib.Path(WORKDIR.value or f"runs/{title}")
    stages.resolve_types(experiment, configs, root)
    shown = stages.named(configs, root, title, COMPARE.value)
    if {"train", "measure"} & set(WANTED.value):
        stages.work(experiment, configs, root, title, WANTED.value)
    if "figures" in WANTED.value:
        stages.check_folders(experiment, configs, root, new=False)
        stages.draw_figures(shown, root / "figures")
    return 0


def run_untrained(config: untrained.UntrainedConfig) -> int:
    """Blocks that nothing trains: of the stages, there is nothing to do in `train`."""
    untrained.validate(config)
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
    path, _, argument = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    return "_".join(filter(None, (pathlib.Path(path).stem, argument)))


if __name__ == "__main__":
    app.run(main, flags_parser=parse)
