"""Pair two trained runs to compare: the same windows of one text, read by both.

Letters: M layers of the second model, X places of all windows, G batches, S sets of positions.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.models.model_settings import describe_model
from anisoscope.sources import two_models
from anisoscope.sources.activations import batch_keys, pick_permuted
from anisoscope.sources.evaluation_windows import Probe
from anisoscope.sources.finished_run import OpenRun, open_finished_run
from anisoscope.sources.paired_clouds import PairedClouds
from anisoscope.sources.run_program import draw_probe
from anisoscope.sources.two_models import ModelPair


def open_run_pair(first: str, second: str) -> ModelPair:
    """Open two runs, as "runs/a" and "runs/b@256": a step after @, else the last."""
    names = first, second
    runs = [open_finished_run(two_models.split_step(name)[0]) for name in names]
    steps = tuple(
        two_models.choose_step(name, run.steps) for name, run in zip(names, runs, strict=True)
    )
    probes = [draw_probe(run.config, run.corpus) for run in runs]
    texts = [_describe_points(run, probe) for run, probe in zip(runs, probes, strict=True)]
    advice = "name two runs of one text, one context and the same measure.* settings"
    two_models.check_comparable(names, texts, advice)
    labels = two_models.choose_labels(names, steps)
    attributes = {"corpus": runs[0].corpus.name} | texts[0]
    for side, run, step, label in zip(("first", "second"), runs, steps, labels, strict=True):
        model = f"{describe_model(run.config.model)}; step {step:,}"
        attributes |= {side: label, f"{side}_step": step, f"{side}_model": model}
    readers = [make_reader(run, step) for run, step in zip(runs, steps, strict=True)]
    measure, text = runs[0].config.measure, runs[0].corpus.record()
    return ModelPair(labels, measure, text, _read_runs(readers, probes[0], measure), attributes)


def _read_runs(
    readers: list[Callable[[np.ndarray], jax.Array]], probe: Probe, measure: MeasureConfig
) -> Iterator[list[PairedClouds]]:
    for batch, key in enumerate(batch_keys(measure.seed, measure.batches)):
        both = [np.asarray(read(probe.tokens_GWT[batch])) for read in readers]
        first_NXD, second_MXE = (x.reshape(len(x), -1, x.shape[-1]) for x in both)
        sets = []
        for picks_P in probe.picks_SGP[:, batch]:
            permuted_NPD = pick_permuted(both[0][None], 0, picks_P, key)
            sets.append(PairedClouds(first_NXD[:, picks_P], second_MXE[:, picks_P], permuted_NPD))
        yield sets


def make_reader(run: OpenRun, step: int) -> Callable[[np.ndarray], jax.Array]:
    """Make the function from windows (W, T) to the residual stream (N, W, T, D)."""
    params, vectors = run.params(step), jax.jit(run.vectors)
    return lambda tokens_WT: vectors(params, tokens_WT)


def _describe_points(run: OpenRun, probe: Probe) -> dict[str, Any]:
    """Return the settings and digests that make point i the same in both runs."""
    measure = {f"measure.{name}": getattr(run.config.measure, name) for name in two_models.SETTINGS}
    tokens = hashlib.sha256(probe.tokens_GWT.tobytes()).hexdigest()
    digests = {"corpus_sha256": run.corpus.sha256, "tokens_sha256": tokens}
    return {"model.context": run.config.model.context} | measure | digests
