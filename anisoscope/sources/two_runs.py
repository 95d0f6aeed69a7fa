"""Two runs of ours as a pair to compare: points are the same characters of the windows that both
are measured on.

Letters: G probe batches, M layers of the second run, S sets of positions, X places of all windows.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from anisoscope.measurement import null_models
from anisoscope.models.description import description
from anisoscope.sources import two_representations
from anisoscope.sources.activations import keys
from anisoscope.sources.evaluation_windows import Probe
from anisoscope.sources.finished_run import OpenRun, open_run
from anisoscope.sources.run_program import probe_of
from anisoscope.sources.two_representations import Clouds, Pair


def compare(first: str, second: str) -> xr.Dataset:
    """The table of two runs, as runs/a and runs/b@256: cka, cka_unbiased and overlap of (layer,
    other_layer).
    """
    return two_representations.table(opened(first, second))


def opened(first: str, second: str) -> Pair:
    """Both runs; UserError, one line, where they cannot be compared."""
    words = first, second
    runs = [open_run(word.partition("@")[0]) for word in words]
    steps = [
        two_representations.step_of(word, run.steps) for word, run in zip(words, runs, strict=True)
    ]
    probes = [probe_of(run.config, run.corpus) for run in runs]
    texts = [_text(run, probe) for run, probe in zip(runs, probes, strict=True)]
    two_representations.refuse_different(
        words, texts, "take two runs of one text, one context and the same measure.* settings"
    )
    labels = two_representations.labels_of(words, tuple(steps))
    measure, probe = runs[0].config.measure, probes[0]

    def attributes() -> dict[str, Any]:
        about = {"corpus": runs[0].corpus.name} | texts[0]
        for place, run, step, label in zip(("first", "second"), runs, steps, labels, strict=True):
            model = f"{description(run.config.model)}; step {step:,}"
            about |= {place: label, f"{place}_step": step, f"{place}_model": model}
        return about

    read = [reader(run, step) for run, step in zip(runs, steps, strict=True)]
    key_G = keys(measure.seed, measure.batches)

    def clouds(batch: int) -> list[Clouds]:
        tokens_WT = probe.tokens_GWT[batch]
        both = [np.asarray(of(tokens_WT)) for of in read]
        first_NXD, second_MXE = (
            x_NWTD.reshape(len(x_NWTD), -1, x_NWTD.shape[-1]) for x_NWTD in both
        )

        def null(picks_P: np.ndarray) -> np.ndarray:
            numbers = range(null_models.PERMUTATIONS)
            return np.stack(
                [
                    null_models.permuted_clouds(both[0], picks_P, key_G[batch], number)
                    for number in numbers
                ]
            )

        sets = probe.picks_SGP[:, batch]
        return [
            Clouds(first_NXD[:, picks_P], second_MXE[:, picks_P], null(picks_P)) for picks_P in sets
        ]

    return Pair(labels, measure, runs[0].corpus, clouds, attributes)


def reader(run: OpenRun, step: int) -> Callable[[np.ndarray], jax.Array]:
    """The residual stream (N, W, T, D) of windows (W, T), by one compiled program."""
    params, vectors = run.params(step), jax.jit(run.vectors)
    return lambda tokens_WT: vectors(params, tokens_WT)


def _text(run: OpenRun, probe: Probe) -> dict[str, Any]:
    """What has to be the same for point i of one to be point i of the other."""
    settings = {
        f"measure.{name}": getattr(run.config.measure, name)
        for name in two_representations.SETTINGS
    }
    tokens = hashlib.sha256(probe.tokens_GWT.tobytes()).hexdigest()
    digests = {"corpus_sha256": run.corpus.sha256, "tokens_sha256": tokens}
    return {"model.context": run.config.model.context} | settings | digests
