"""The stage `export`: the last checkpoint of a run as a Hugging Face folder, RUN/export."""

import contextlib
import pathlib
from typing import Any

from anisoscope.config.experiment_config import Config
from anisoscope.models.description import description
from anisoscope.sources.hf import folders
from anisoscope.training.checkpoint import Checkpoints
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json


def check_export(config: Config) -> None:
    """Raise UserError, before any work is done, where no class has this model's block."""
    folders.class_of(config.model)


def run(config: Config, root: pathlib.Path, name: str) -> None:
    step, folder = config.train.steps, root / "export"
    with contextlib.closing(Checkpoints(root / "checkpoints", kept=[], reading=True)) as store:
        if step not in store.steps():
            where = root / "checkpoints"
            raise UserError(
                f"{where} has no checkpoint of the last step, {step}; run --stages=train first"
            )
        corpus = _corpus(root / "environment.json")
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
            if read_json(there, f"move {folder} elsewhere").get("anisoscope") != about:
                raise UserError(f"{folder} holds another model; move it elsewhere")
            if lacking := [file for file in folders.FILES if not (folder / file).exists()]:
                raise UserError(f"{folder} lacks {', '.join(lacking)}; move it elsewhere")
            print(f"{name}: exported already: {folder}")
            return
        folders.write(folder, config.model, store.restore_params(step), corpus["vocabulary"], about)
    print(f"{name}: step {step} as {folders.class_of(config.model).name}: {folder}")


def _corpus(environment: pathlib.Path) -> dict[str, Any]:
    """The name, sha256 and vocabulary of the text that the run was trained on."""
    advice = "move it elsewhere, and train again"
    record = read_json(environment, advice)
    try:
        corpus = {name: record["corpus"][name] for name in ("name", "sha256", "vocabulary")}
        return corpus | {"vocabulary": bytes(corpus["vocabulary"])}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{environment} is damaged ({error!r}); {advice}") from error
