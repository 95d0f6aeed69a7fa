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
from anisoscope.metrics.convert import ArrayLike
from anisoscope.sources.array_checks import FEWEST_POINTS
from anisoscope.sources.recording.host_calls import send
from anisoscope.sources.recording.recorded_passes import (
    Pass,
    Reservoir,
    Sequences,
    as_booleans,
    check_mask,
    take_rows,
)
from anisoscope.utils import files
from anisoscope.utils.errors import as_value_error
from anisoscope.utils.extras import required_by

if TYPE_CHECKING:
    import torch

OUTPUT = "output"  # name of the output of a function that returns one array


class Recorder:
    """The recorder that `anisoscope.record` returns.

    Hooks are in place inside `with`; at its end the sample is written to `to`. Calling the recorder
    calls the model or function with the same arguments, and returns the same outputs.
    """

    def __init__(self, model: Any, hook_points: Any, to: Any, points: int, seed: int):
        if points < FEWEST_POINTS:
            raise ValueError(f"points is {points}; at least {FEWEST_POINTS} are needed")
        self.to = None if to is None else files.user_path(to)
        if self.to is not None:
            _check_new(self.to)
        self.model, self.points, self.seed = model, points, seed
        self.hook_points = hook_points
        self.in_torch = hasattr(model, "register_forward_hook")
        if self.in_torch:
            from anisoscope.sources.hf import recorder_hooks

            self.hook_points = recorder_hooks.find_modules(
                model, () if hook_points is None else hook_points
            )
            self.hooks = recorder_hooks.PassHooks(
                model, self.hook_points, self.begin_pass, self.leave_out
            )
        self.stack, self.entered = contextlib.ExitStack(), 0
        self.adding = threading.Lock()
        self.start_over()

    def start_over(self) -> None:
        """Forget the sample, and begin another."""
        self.refused = ""  # why the last refused pass was left out
        self.reservoir = Reservoir(self.points, np.random.default_rng(self.seed))

    def begin_pass(self) -> Pass:
        """Begin a pass."""
        return Pass(self.reservoir, self.hook_points)

    def __enter__(self) -> Recorder:
        self.entered += 1
        if self.in_torch and self.entered == 1:
            self.stack.enter_context(self.hooks.attach())
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.entered -= 1
        if self.entered:
            return  # inside of another `with`, whose end removes the hooks
        self.stack.close()
        if self.to is not None and (self.rows or kind is None):
            self.write()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.model(*args, **kwargs)
        if not self.in_torch:
            try:
                self.add(outputs if self.hook_points is None else self.hook_points(outputs))
            except Exception as error:
                self.leave_out(error)
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
        mask = mask if mask is None or hasattr(mask, "shape") else np.asarray(mask)
        for name, x in arrays.items():
            if getattr(x, "ndim", None) not in (2, 3):
                shape = getattr(x, "shape", type(x).__name__)
                advice = "pass (batch, tokens, width), of several layers {name: layer}"
                raise ValueError(f"{name} has shape {shape}; {advice}")
            if mask is not None:
                check_mask(name, tuple(x.shape[:-1]), mask)
        if any(isinstance(x, jax.core.Tracer) for x in (*arrays.values(), mask)):
            send(self._receive, (arrays, mask))
        else:
            self._add(arrays, mask)

    def _receive(self, arrays: dict[str, Any], mask: Any) -> None:
        """Record what a compiled program sends; an error here would stop the program."""
        try:
            self._add(arrays, mask)
        except Exception as error:
            self.leave_out(error)

    def _add(self, arrays: dict[str, Any], mask: Any) -> None:
        mask = None if mask is None else as_booleans(mask)
        with self.adding:
            current = Pass(self.reservoir)
            for name, x in arrays.items():
                lead = tuple(x.shape[:-1])
                own = mask if mask is not None and mask.shape == lead else None
                draw = current.draw(name, Sequences(lead, own))
                current.rows[name] = take_rows(x, draw.rows_M, name)
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
            hint = "call the model, or the recorder, as a function inside of `with`"
            raise ValueError(f"nothing was recorded: {self.refused or hint}")
        sample, order_S = self.reservoir, self.reservoir.order_S
        arrays = sample.x_NSD[:, order_S], sample.cluster_S[order_S], sample.position_S[order_S]
        return dict(zip(("vectors", "clusters", "token_positions"), arrays, strict=True))

    def measure(self, **options: Any) -> xr.Dataset:
        """Measure the sample with `anisoscope.measure`."""
        sample = self.sample() | {"layer_names": self.reservoir.names}
        return anisoscope.measure([*sample.pop("vectors")], **sample | options)

    def write(self, to: str | os.PathLike[str] | None = None) -> None:
        """Write the sample as a new NetCDF file, completely or not at all."""
        to = self.to if to is None else files.user_path(to)
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
        hook_points: for a module, names of submodules, such as "blocks.*" for all blocks, or
            {name: submodule}. Each must run once per pass and return (batch, tokens, width) or
            (batch, width), as its only or first output. For a function, a callable that maps its
            output to {name: array}. All have one shape and read the same sequences.
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
