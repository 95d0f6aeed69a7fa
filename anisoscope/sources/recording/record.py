"""Record and measure while a user's own loop runs: a recorder, a table a step, a callback."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from anisoscope.api import FIRST_LOOK, Vectors
from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.metrics.scalars import ArrayLike
from anisoscope.utils.errors import as_value_error

if TYPE_CHECKING:
    import torch
    import transformers
    import xarray as xr

    from anisoscope.sources.recording.recorder import Recorder


def record(
    model: torch.nn.Module | Callable[..., object],
    hook_points: Sequence[str]
    | Mapping[str, torch.nn.Module]
    | Callable[[object], Mapping[str, ArrayLike]]
    | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    points: int = 4096,
    seed: int = 0,
) -> Recorder:
    """Record a fair sample of hook points in bounded memory: `with record(…) as recorder:`.

    Each row of the passes inside of `with` is kept with the same probability (reservoir sampling),
    at the same positions for all hook points of one shape. Padding by `attention_mask` is never
    kept, and where `position_ids` begin anew another cluster begins. A pass that breaks off leaves
    nothing. A pass of a module that cannot be recorded is left out with a warning: the module's own
    pass always goes on.

    Args:
        model: a torch.nn.Module, whose calls are passes; or a function, as of JAX, that is called
            as `recorder(…)` with the same outputs, also inside of `jax.jit`.
        hook_points: of a module, names as `model.named_modules()` has them, or {name: module}, each
            of which gives (batch, tokens, width) or (batch, width), alone or first of several
            things, once in a pass. Of a function, what makes {name: array} of its output; None
            where the output is that, or one array.
        to: a folder that ends with .zarr and does not exist: the sample is written there at the
            end. None: nowhere.
        points: rows of a hook point that are kept, at most.
        seed: which rows.

    Returns:
        A Recorder: `.sample()` gives arrays, `.measure()` the table of `measure`, `.write(to)`
        writes now, `.add(arrays, mask)` takes a pass by hand, `.start_over()` begins another
        sample, `.seen` counts rows.

    Raises:
        ValueError: a path that exists, or what cannot be recorded; in one line.

    >>> import numpy as np
    >>> with record(lambda batch: np.tanh(batch)) as recorder:
    ...     for step in range(20):
    ...         outputs = recorder(np.random.default_rng(step).standard_normal((8, 16, 4)))
    >>> recorder.seen, recorder.sample()["vectors"].shape
    (2560, (1, 2560, 4))
    """
    from anisoscope.sources.recording import recorder

    with as_value_error():
        return recorder.Recorder(model, hook_points, to, points, seed)


def measure_step(
    x: Recorder | Vectors,
    step: int,
    folder: str | os.PathLike[str],
    *,
    clusters: ArrayLike | Sequence[object] | None = None,
    layer_names: Sequence[str] | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
) -> xr.Dataset:
    """Measure a step of any training loop into a folder, which the figures over training read.

    Args:
        x: a Recorder, whose next sample begins then; or vectors as of `measure`, with `clusters`
            and `layer_names` as there.
        step: of the training, a whole number from 0 to 2^31 - 1.
        folder: new, or one that this function has written to. It holds measurements/<step>.nc, and
            results.nc and results.csv of all steps. Nothing is overwritten but these two.
        clusters: as for `measure`.
        layer_names: of the layers, by which steps are joined; of a Recorder, its hook points.
        families: as for `measure`.
        nulls: as for `measure`.
        seed: of the folds and of the null model.

    Returns:
        A Dataset of all steps so far, with the dimensions (step, statistic, layer, …).

    Raises:
        ValueError: a step that is there already, other layers than those of earlier steps, or what
            cannot be measured; in one line, and the folder is as it was.
    """
    from anisoscope.sources.recording import measure_step

    with as_value_error():
        return measure_step.measure_step(
            x, step, folder, clusters, layer_names, families, nulls, seed
        )


def trainer_callback(
    hook_points: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    every: int = 100,
    on: str = "step",
    points: int = 4096,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
) -> transformers.TrainerCallback:
    """Make a callback for the Trainer of transformers that calls `measure_step`.

    What cannot be measured is a warning, and the training goes on.

    Args:
        hook_points: names of modules, as for `record`.
        folder: as for `measure_step`.
        every: training steps from one table to the next. A table of step s holds the passes by
            which step s + 1 is made: the model after s updates, while it trains, with its dropout.
        on: "step"; or "evaluate": a table of all passes of each evaluation, without dropout, on the
            same texts.
        points: vectors of a cloud, at most.
        families: as for `measure`.
        nulls: as for `measure`.
        seed: which vectors.

    Returns:
        A TrainerCallback. Its hooks are removed when the training ends.

    Raises:
        ValueError: a folder that holds other things, or tables of later steps, when the training
            begins.
        ImportError: torch or transformers is not installed.
    """
    from anisoscope.sources.hf import trainer_callback

    with as_value_error():
        return trainer_callback.Tables(
            hook_points,
            folder,
            every,
            on,
            points,
            {"families": families, "nulls": nulls, "seed": seed},
        )
