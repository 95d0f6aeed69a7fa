"""Record hook points of a model or function while a loop runs: a sample in bounded memory.

Letters: D width; M points of a pass; S slots of the sample.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK
from anisoscope.metrics.convert import ArrayLike
from anisoscope.sources.array_checks import FEWEST
from anisoscope.sources.recording.recorded_passes import (
    Pass,
    Reservoir,
    as_booleans,
    check_mask,
    send_p,
    take_rows,
)
from anisoscope.utils import files
from anisoscope.utils.errors import as_value_error
from anisoscope.utils.extras import required_by

if TYPE_CHECKING:
    import torch
    import transformers

OUTPUT = "output"  # name of the output of a function that returns one array


class Recorder:
    """The recorder that `anisoscope.record` returns.

    Hooks are in place inside `with`; at its end the sample is written to `to`. Calling the recorder
    calls the model or function with the same arguments, and returns the same outputs.
    """

    def __init__(self, model: Any, hook_points: Any, to: Any, points: int, seed: int):
        if points < FEWEST:
            raise ValueError(f"points is {points}; at least {FEWEST} are needed")
        self.to = None if to is None else pathlib.Path(to)
        if self.to is not None:
            _check_new(self.to)
        self.model, self.points, self.seed, self.active = model, points, seed, True
        self.hook_points = hook_points
        self.in_torch = hasattr(model, "register_forward_hook")
        if self.in_torch:
            from anisoscope.sources.hf import recorder_hooks

            self.hook_points = recorder_hooks.find_modules(
                model, () if hook_points is None else hook_points
            )
            self.tokens_first = {
                name: recorder_hooks.tokens_first(model, name, part)
                for name, part in self.hook_points.items()
            }
        self.stack, self.adding = contextlib.ExitStack(), threading.Lock()
        self.start_over()

    def start_over(self) -> None:
        """Forget the sample, and begin another."""
        self.refused = ""  # why the last refused pass was left out
        self.reservoir = Reservoir(self.points, np.random.default_rng(self.seed))

    def __enter__(self) -> Recorder:
        if self.in_torch:
            from anisoscope.sources.hf import recorder_hooks

            self.stack.enter_context(recorder_hooks.attach(self))
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.stack.close()
        if self.to is not None and (self.rows or kind is None):
            self.write()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.model(*args, **kwargs)
        if not self.in_torch:
            self.add(outputs if self.hook_points is None else self.hook_points(outputs))
        return outputs

    def add(self, arrays: Any, mask: Any = None) -> None:
        """Record a pass by hand, also inside of `jax.jit`, `jax.grad` and `jax.checkpoint`.

        Args:
            arrays: an array or {name: array}, each (batch, tokens, width) or (batch, width).
            mask: (batch, tokens), 0 or False at padding, 1 or True elsewhere.

        Raises:
            ValueError: a mask or arrays do not fit; the message is one line. The pass is left out.
        """
        arrays = dict(arrays) if isinstance(arrays, Mapping) else {OUTPUT: arrays}
        if not self.active:
            return
        mask = mask if mask is None or hasattr(mask, "shape") else np.asarray(mask)
        for name, x in arrays.items():
            if getattr(x, "ndim", None) not in (2, 3):
                shape = getattr(x, "shape", type(x).__name__)
                raise ValueError(f"{name} has shape {shape}; pass (batch, tokens, width)")
            if mask is not None:
                check_mask(name, tuple(x.shape[:-1]), mask)
        if any(isinstance(x, jax.core.Tracer) for x in (*arrays.values(), mask)):
            leaves, tree = jax.tree.flatten((arrays, mask))
            send_p.bind(*leaves, receive=self._add, tree=tree)
        else:
            self._add(arrays, mask)

    def _add(self, arrays: dict[str, Any], mask: Any) -> None:
        mask = None if mask is None else as_booleans(mask)
        with self.adding:
            current = Pass(self)
            for name, x in arrays.items():
                lead = tuple(x.shape[:-1])
                own = mask if mask is not None and mask.shape == lead else None
                current.rows[name] = take_rows(x, current.draw(name, lead, own).rows_M, name)
            current.end()

    def leave_out(self, error: Exception) -> None:
        """Warn that a pass is not recorded; the model's own pass continues."""
        self.refused = (str(error).splitlines() or [repr(error)])[0]
        warnings.warn(f"a pass was not recorded: {self.refused}", stacklevel=3)

    @property
    def rows(self) -> int:
        """Rows offered so far."""
        if not self.in_torch:
            jax.effects_barrier()  # wait for what compiled programs have sent
        return self.reservoir.offered

    def sample(self) -> dict[str, np.ndarray]:
        """Return float32 `vectors` (hook points, points, width), `clusters` and `token_positions`.

        Labels have shape (points,).

        Raises:
            ValueError: nothing was recorded.
        """
        if not self.rows:
            hint = "call the model, or the recorder, inside of `with`"
            raise ValueError(f"nothing was recorded: {self.refused or hint}")
        sample, order_S = self.reservoir, self.reservoir.order_S
        arrays = sample.x_NSD[:, order_S], sample.cluster_S[order_S], sample.position_S[order_S]
        return dict(zip(("vectors", "clusters", "token_positions"), arrays, strict=True))

    def measure(self, **options: Any) -> xr.Dataset:
        """Measure the sample with `anisoscope.measure`."""
        sample = self.sample() | {"layer_names": self.reservoir.names}
        return anisoscope.measure(sample.pop("vectors"), **sample | options)

    def write(self, to: str | os.PathLike[str] | None = None) -> None:
        """Write the sample as a new NetCDF file, completely or not at all."""
        to = self.to if to is None else pathlib.Path(to)
        _check_new(to)
        dims = ("hook_point", "point", "width")
        arrays = {name: (dims if x.ndim == 3 else "point", x) for name, x in self.sample().items()}
        names = json.dumps(self.reservoir.names)
        attributes = {"hook_points": names, "rows": self.rows, "seed": self.seed}
        attributes["anisoscope"] = anisoscope.__version__
        temporary = files.temporary_path(to)
        try:
            xr.Dataset(arrays, attrs=attributes).to_netcdf(temporary, engine="h5netcdf")
            os.rename(temporary, to)
        finally:
            temporary.unlink(missing_ok=True)


def _check_new(path: pathlib.Path) -> None:
    """Raise ValueError where a file may not be written."""
    if path.suffix != ".nc":
        raise ValueError(f"to is {path}; name a file that ends with .nc")
    with required_by(f"to={path}"):
        import h5netcdf  # noqa: F401, as xarray will
    if path.exists() or path.is_symlink():
        raise ValueError(f"to: {path} exists, and nothing is overwritten; name another file")
    if not path.parent.is_dir():
        raise ValueError(
            f"to: the folder {path.parent} does not exist; create it to write {path.name}"
        )


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
    same probability (reservoir sampling), and the same rows are kept of every hook point.
    Padding by `attention_mask` is never kept, and another cluster begins where `position_ids`
    restart. An aborted pass records nothing; a pass that cannot be recorded causes a warning.

    Args:
        model: a torch.nn.Module; or a function, such as one of JAX, called as `recorder(…)` with
            the same outputs, also inside of `jax.jit`.
        hook_points: for a module, names of submodules or {name: submodule}. Each must run once per
            pass and return (batch, tokens, width) or (batch, width), as its only or first output.
            For a function, a callable that maps its output to {name: array}. All have one shape and
            read the same sequences.
        to: a new file that ends with .nc, written at the end; None: no file.
        points: maximum number of rows kept.
        seed: seed of the sample.

    Returns:
        A Recorder, with `sample()`, `measure()`, `write(to)`, `add(arrays, mask)`, `start_over()`
        and `rows`.

    Raises:
        ValueError: the path exists, or the model cannot be recorded; the message is one line.

    >>> import numpy as np
    >>> with record(lambda batch: np.tanh(batch)) as recorder:
    ...     for step in range(20):
    ...         outputs = recorder(np.random.default_rng(step).standard_normal((8, 16, 4)))
    >>> recorder.rows, recorder.sample()["vectors"].shape
    (2560, (1, 2560, 4))
    """
    with as_value_error():
        return Recorder(model, hook_points, to, points, seed)


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
        points: maximum number of vectors in a cloud.
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
        return trainer_callback.MeasureCallback(
            hook_points,
            folder,
            every,
            on,
            points,
            {"families": families, "nulls": nulls, "seed": seed},
        )
