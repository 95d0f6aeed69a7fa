"""Record and measure while a user's own loop runs: a recorder, and a callback."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK
from anisoscope.metrics.convert import ArrayLike
from anisoscope.utils.errors import as_value_error

if TYPE_CHECKING:
    import torch
    import transformers

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
    """Record a uniform sample of hook points in bounded memory.

    Use it as `with record(…) as recorder:`. Each row of the passes inside `with` is kept with the
    same probability (reservoir sampling), at the same positions of all hook points.
    Padding by `attention_mask` is never kept, and another cluster begins where `position_ids`
    restart. A pass that breaks off leaves nothing; one that cannot be recorded causes a warning.

    Args:
        model: a torch.nn.Module; or a function, as of JAX, that is called as `recorder(…)` with
            the same outputs, also inside of `jax.jit`.
        hook_points: of a module, names or {name: module} that return (batch, tokens, width) or
            (batch, width), alone or first, once in a pass; of a function, its output's {name: array}.
            All have one shape, and read the same sequences.
        to: a new file that ends with .nc, written at the end; None: nowhere.
        points: most rows kept of a hook point.
        seed: seed of the sample.

    Returns:
        A Recorder, with `sample()`, `measure()`, `write(to)`, `add(arrays, mask)`, `start_over()`
        and `rows`.

    Raises:
        ValueError: the path exists, or the model cannot be recorded; in one line.

    >>> import numpy as np
    >>> with record(lambda batch: np.tanh(batch)) as recorder:
    ...     for step in range(20):
    ...         outputs = recorder(np.random.default_rng(step).standard_normal((8, 16, 4)))
    >>> recorder.rows, recorder.sample()["vectors"].shape
    (2560, (1, 2560, 4))
    """
    from anisoscope.sources.recording import recorder

    with as_value_error():
        return recorder.Recorder(model, hook_points, to, points, seed)


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

    A step that cannot be measured causes a warning, and the training continues.

    Args:
        hook_points: names of modules, as for `record`.
        folder: as for `measure_step`.
        every: steps between tables. That of step s holds the passes that make step s + 1, in
            training mode.
        on: "step"; or "evaluate": a table of all passes of each evaluation, without dropout.
        points: vectors of a cloud, at most.
        families: as for `measure`.
        nulls: as for `measure`.
        seed: seed of the sample.

    Returns:
        A TrainerCallback. Its hooks are removed when the training ends.

    Raises:
        ValueError: the folder holds other files or later steps, when the training begins.
        ImportError: torch or transformers is not installed.

    >>> trainer.add_callback(trainer_callback(["transformer.h.0"], "geometry", every=50))
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
