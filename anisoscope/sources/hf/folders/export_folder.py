"""Run the stage `export`: write the last checkpoint as a Hugging Face folder, RUN/export."""

import contextlib
import pathlib

from anisoscope.config.experiment_config import Config
from anisoscope.models.description import describe_model
from anisoscope.sources.hf import folders
from anisoscope.training.checkpoint import Checkpoints
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json


def check_export(config: Config) -> None:
    """Raise UserError before any work where no class has this model's block."""
    folders.find_class(config.model)


def run(config: Config, root: pathlib.Path, name: str) -> None:
    """Export the last checkpoint; do nothing where the folder already holds it."""
    step, folder, checkpoints = config.train.steps, root / "export", root / "checkpoints"
    with contextlib.closing(Checkpoints(checkpoints, kept=[], reading=True)) as store:
        if step not in store.steps():
            raise UserError(
                f"{checkpoints} has no checkpoint of the last step, {step}; "
                "run --stages=train first"
            )
        environment = read_json(root / "environment.json", "train again")
        corpus = environment["corpus"]
        about = {
            "run": name,
            "step": step,
            "digest": store.digest(step),
            "model": describe_model(config.model),
            "objective": config.objective,
            "corpus": corpus["name"],
            "corpus_sha256": corpus["sha256"],
        }
        settings = folder / folders.SETTINGS
        if settings.exists():
            if read_json(settings, f"move {folder} elsewhere").get("anisoscope") != about:
                raise UserError(f"{folder} holds another model; move it elsewhere")
            if missing := [file for file in folders.FILES if not (folder / file).exists()]:
                raise UserError(f"{folder} lacks {', '.join(missing)}; move it elsewhere")
            print(f"{name}: exported already: {folder}")
            return
        params, vocabulary = store.restore_params(step), bytes(corpus["vocabulary"])
        folders.write_folder(folder, config.model, params, vocabulary, about)
    print(f"{name}: step {step} as {folders.find_class(config.model).name}: {folder}")
