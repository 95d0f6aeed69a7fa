"""Which learning rate, warm-up and decay each recipe learns most with: as many values of each for every recipe.

    python -m dev.tuning [--recipes muon,rotary,gpt2,sgd] [--models decoder,encoder] [--steps 300]
        [--config.data.path=FILE] …

A matched pair (matched_pair_small.py:tiny) trains on a constant schedule with a decay at the end. First
the rate is chosen, then at that rate the warm-up, then the decay: by the sum of the models' bits on the validation
split, one seed; no test score is read. A trial that is done is not done again, and one that was stopped goes on;
of a trial that is done its logs are kept and its checkpoints are not.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from anisoscope.cli import flags
from anisoscope.config.recipes import RECIPES
from anisoscope.config.run import TrainConfig
from anisoscope.training import finished
from anisoscope.utils.files import write_json

MODELS = {"decoder": "experiments/decoder_small.py:tiny", "encoder": "experiments/encoder_small.py:tiny"}
RATES = {
    "muon": (0.005, 0.01, 0.02, 0.04),
    "rotary": (1e-3, 2e-3, 4e-3, 8e-3),
    "gpt2": (5e-4, 1e-3, 2e-3, 4e-3, 8e-3),  # the last since after 1,000 steps the best of four was at their edge
    "sgd": (0.03, 0.1, 0.3, 1.0),
}
# In the order in which they are chosen; the first of each but the rates is what the rates were tried with.
KNOBS: dict[str, Any] = {
    "learning_rate": None,
    "warmup_fraction": (TrainConfig().warmup_fraction, 0.02, 0.15),
    "decay_fraction": (TrainConfig().decay_fraction, 0.1, 0.4),
}


def values(knob: str, recipe: str) -> tuple[float, ...]:
    return RATES[recipe] if knob == "learning_rate" else KNOBS[knob]


def of_recipes() -> set[str]:
    """Settings that recipes set."""
    return {name for settings in RECIPES.values() for name in settings}


def trials(knob: str, recipe: str, chosen: dict[str, float]) -> list[dict[str, float]]:
    """All three values of each trial in which this knob varies; earlier ones as chosen, later ones at their first."""
    first = {name: values(name, recipe)[0] for name in KNOBS}
    return [first | chosen | {knob: value} for value in values(knob, recipe)]


def name_of(model: str, recipe: str, trial: dict[str, float]) -> str:
    return "-".join([model, recipe, *(f"{value:g}" for value in trial.values())])


def bits(out: pathlib.Path, model: str, recipe: str, trial: dict[str, float], given: dict[str, str | None]) -> float:
    """Bits at the last step on the validation split; trained first where that is not done."""
    folder, kept = out / name_of(model, recipe, trial), out / "bits.json"
    done = json.loads(kept.read_text()) if kept.exists() else {"settings": given, "bits": {}}
    if done["settings"] != given:
        sys.exit(f"{kept} comes from other settings; name another --out")
    if folder.name not in done["bits"]:
        settings = {f"train.{knob}": value for knob, value in trial.items()} | {"train.schedule": "constant"} | given
        experiment = [f"--config={MODELS[model]},{recipe}", f"--workdir={folder}", "--stages=train"]
        command = [sys.executable, "main.py", *experiment, *flags.joined(settings)]
        if code := subprocess.run(command).returncode:
            sys.exit(code)
        lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
        scored = [line["bits_per_character"] for line in lines if line["kind"] == "valid"]
        if not finished.is_finished(folder):
            sys.exit(f"{folder.name} was stopped; the same command resumes")
        done["bits"][folder.name] = scored[-1]
        write_json(kept, done)
        shutil.rmtree(folder / "checkpoints")
    return done["bits"][folder.name]


def tune(
    recipes: list[str], models: list[str], out: pathlib.Path, given: dict[str, str | None]
) -> dict[str, dict[str, float]]:
    """Knob by knob, each of all recipes; tables are printed as they are done."""
    chosen: dict[str, dict[str, float]] = {recipe: {} for recipe in recipes}
    for knob in KNOBS:
        for recipe in recipes:
            of_trial = [
                (sum(found), trial[knob], found)
                for trial in trials(knob, recipe, chosen[recipe])
                for found in [[bits(out, model, recipe, trial, given) for model in models]]
            ]
            for total, value, found in of_trial:
                each = "  ".join(f"{model} {one:.3f}" for model, one in zip(models, found, strict=True))
                print(f"{recipe:8} {knob} {value:<8g} {each}  sum {total:.3f}", flush=True)
            chosen[recipe][knob] = min(of_trial, key=lambda one: one[0])[1]
            print(f"{recipe:8} {knob}: {chosen[recipe][knob]:g}", flush=True)
    return chosen


def main() -> None:
    words, given = flags.split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", default=",".join(RATES), help=f"of {', '.join(RATES)}")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--steps", type=int, default=300, help="of each trial")
    parser.add_argument("--out", type=pathlib.Path, help="left out: runs/tuning/STEPS")
    options = parser.parse_args(words)
    recipes, models = options.recipes.split(","), options.models.split(",")
    for names, kind, known in ((recipes, "recipe", RATES), (models, "model", MODELS)):
        if unknown := [name for name in names if name not in known]:
            parser.error(f"{unknown[0]!r} is no {kind}; choose from {', '.join(known)}")
    if varied := [f"--config.{name}" for name in given if name.removeprefix("train.") in KNOBS or name in of_recipes()]:
        parser.error(f"{varied[0]} is what trials and recipes differ in; leave it out")
    out = options.out or pathlib.Path("runs/tuning") / str(options.steps)
    out.mkdir(parents=True, exist_ok=True)
    fixed = {"train.steps": str(options.steps), "evaluate.every": str(options.steps)}
    fixed |= {"checkpoint.every": str(options.steps), "evaluate.draws": "4", "evaluate.stride": "256"}
    for recipe, found in tune(recipes, models, out, fixed | given).items():
        print(f"{recipe}: " + ", ".join(f"{knob} {value:g}" for knob, value in found.items()))


if __name__ == "__main__":
    main()
