"""The stage `export`: the last checkpoint of a run as a Hugging Face folder, RUN/export."""

import contextlib
import json
import pathlib

from experiments.config import Config
from models.description import description
from pretrained import folders
from training.checkpoint import Checkpoints
from workdir.errors import UserError
from workdir.files import read_json


def check(config: Config) -> None:
    """Raise UserError, before any work is done, where no class has this model's block."""
    folders.class_of(config.model)


def run(config: Config, root: pathlib.Path, name: str) -> None:
    step, folder = config.train.steps, root / "export"
    with contextlib.closing(Checkpoints(root / "checkpoints", kept=[], reading=True)) as store:
        if step not in store.steps():
            where = root / "checkpoints"
            raise UserError(f"{where} has no checkpoint of the last step, {step}; run --stages=train first")
        corpus = read_json(root / "environment.json", "move it elsewhere, and train again")["corpus"]
        about = {
            "run": name,
            "step": step,
            "digest": store.digest(step),
            "model": description(config.model),
            "objective": config.objective,
            "corpus": corpus["name"],
            "corpus_sha256": corpus["sha256"],
        }
        there = folder / folders.SETTINGS
        if there.exists():
            if json.loads(there.read_text()).get("anisoscope") == about:
                print(f"{name}: exported already: {folder}")
                return
            raise UserError(f"{folder} holds another model; move it elsewhere")
        folders.write(folder, config.model, store.restore_params(step), bytes(corpus["vocabulary"]), about)
    print(f"{name}: step {step} as {folders.class_of(config.model).name}: {folder}")
