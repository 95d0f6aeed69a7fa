"""Record where the numbers of a table come from, and check whether that has changed."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.data.corpus import Corpus
from anisoscope.models.model_settings import describe_model
from anisoscope.results.derived import BLOCK
from anisoscope.sources.evaluation_windows import POSITION_SETS, describe_evenness
from anisoscope.sources.run_program import draw_probe
from anisoscope.training import checkpoint
from anisoscope.training.objective import OBJECTIVES
from anisoscope.utils.errors import RunError
from anisoscope.utils.folder import ANYWHERE
from anisoscope.utils.settings import flat, to_dict

HOOK_POINT_DESCRIPTIONS = {
    "attention_out": "output of attention, before it is added to the residual stream",
    "mlp_out": "output of the feed-forward layer, before it is added to the residual stream",
    "values": "values of all heads side by side",
}


def made_by(config: Config, corpus: Corpus) -> dict[str, Any]:
    """List what decides which vectors form a cloud; only tables that share it are joined."""
    names = ["points", "batches", "folds", "seed", "weighting", "masked"]
    names += ["projected_head"] * ("projection" in config.measure.families)
    settings = {f"measure.{name}": getattr(config.measure, name) for name in names}
    return settings | {"corpus_sha256": corpus.sha256, "positions": POSITION_SETS}


def run_settings(config: Config) -> dict[str, Any]:
    """List what all sessions of a run must share, by dotted name (utils/folder.py)."""
    return {
        name: value
        for name, value in flat(to_dict(config)).items()
        if not name.startswith(ANYWHERE)
    }


def run_attributes(config: Config, corpus: Corpus, name: str) -> dict[str, Any]:
    """Describe a run, for tables of any kind."""
    return {
        "run": name,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "model": describe_model(config.model),
        "objective": config.objective,
        "steps": config.train.steps,
        "seed": config.train.seed,
        "config": json.dumps(dataclasses.asdict(config)),
    }


def attributes(config: Config, corpus: Corpus, name: str) -> dict[str, Any]:
    """Describe a run and its clouds."""
    settings = config.measure
    masked = settings.masked and OBJECTIVES[config.objective].random_targets
    read = "masked as in training" if masked else "unmasked"
    return (
        run_attributes(config, corpus, name)
        | {
            "points": settings.points,
            "batches": settings.batches,
            "folds": settings.folds,
            "input": f"validation windows, {read}, model applied in float32",
        }
        | (
            {}
            if settings.weighting == "none"
            else {"weighting": describe_evenness(draw_probe(config, corpus))}
        )
    )


def hook_point_attributes(run: str, name: str) -> dict[str, str]:
    """Describe a hook point, in addition to the attributes of its run."""
    return {
        "run": f"{run}, {name}",
        "hook_point": name,
        "hook_point_in_words": HOOK_POINT_DESCRIPTIONS[name],
        "layer_0": BLOCK,
    }


def number_blocks(table: xr.Dataset) -> xr.Dataset:
    """Assign numbers from 1 to the layers of a hook point: layer l is block l."""
    layer = np.arange(1, table.sizes["layer"] + 1)
    return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))


def is_outdated(table: xr.Dataset, store: checkpoint.CheckpointReader) -> bool:
    """Return whether an existing checkpoint of the table has other parameters now."""
    read_then = json.loads(table.attrs.get("checkpoints", "{}"))
    return any(store.digest(int(step)) not in (None, digest) for step, digest in read_then.items())


@contextlib.contextmanager
def advice_on_damage() -> Iterator[None]:
    """Add to an error what to do with a damaged checkpoint."""
    try:
        yield
    except RunError as error:
        advice = "delete it to measure without it; --stages=replay --step=… makes it again"
        raise RunError(f"{error}; {advice}") from error
