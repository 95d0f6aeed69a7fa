"""Open two folders of runs to compare, at least one of which measured a pretrained model."""

import json
import pathlib

import numpy as np

from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.data.corpus import Corpus, load_corpus
from anisoscope.models.model_settings import describe_model
from anisoscope.results import joined_files
from anisoscope.sources import two_models
from anisoscope.sources.finished_run import open_finished_run
from anisoscope.sources.hf.measure_model import open_model
from anisoscope.sources.hf.token_windows import validation_split
from anisoscope.sources.hf.two_pretrained import SharedText, Side, make_side, pair_sides
from anisoscope.sources.two_models import ModelPair
from anisoscope.sources.two_runs import make_reader
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.settings import from_dict


def open_pretrained_pair(first: str, second: str) -> ModelPair:
    """Open both models; UserError where they cannot be compared."""
    return pair_sides((first, second), (open_side(first), open_side(second)))


def open_side(name: str) -> Side:
    """Open one model, "folder" or "folder@step": of ours, or a pretrained one."""
    if not two_models.is_pretrained(name):
        return _open_trained(name)
    path = pathlib.Path(two_models.split_step(name)[0])
    settings = read_json(path / "config.json", "name the folder of a run")
    if "models" in settings:
        raise UserError(f"--similarity={name} holds several models; name the folder of one model")
    if (path / "results.nc").exists():  # only the tables know which revisions were measured
        settings = json.loads(joined_files.read_table(path / "results.nc").attrs["config"])
    config = from_dict(settings, PretrainedConfig)
    revisions = revision_steps(config.pretrained)
    step = two_models.choose_step(name, list(revisions))
    loaded, tokenizer = open_model(config.pretrained.name, revisions[step], None, config)
    corpus = load_corpus(config.data, config.window)
    return make_side(name, loaded, tokenizer, _share(corpus), config, step)


def _open_trained(name: str) -> Side:
    run = open_finished_run(two_models.split_step(name)[0])
    step, context = two_models.choose_step(name, run.steps), run.config.model.context
    read = make_reader(run, step)
    token_of = np.zeros(256, np.int32)
    token_of[np.frombuffer(run.corpus.vocabulary, np.uint8)] = np.arange(len(run.corpus.vocabulary))

    def vectors(chunk: bytes) -> np.ndarray:
        return np.asarray(read(token_of[np.frombuffer(chunk, np.uint8)][None]))[:, 0]

    def ends(chunk: bytes) -> np.ndarray:
        return np.arange(1, len(chunk) + 1)

    description = f"{describe_model(run.config.model)}; step {step:,}"
    text = _share(run.corpus)
    return Side(step, run.config.measure, text, context, context, description, ends, vectors)


def _share(corpus: Corpus) -> SharedText:
    return SharedText(corpus.name, validation_split(corpus), corpus.sha256, corpus.record())
