"""A recorder: chosen hook points of a model or function, sampled while somebody's own loop runs, in bounded memory.

Letters: M rows of a pass that are taken; S slots of the sample.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import anisoscope
from anisoscope.measurement.recording import store
from anisoscope.measurement.recording.reservoir import Drawn, Reservoir
from anisoscope.utils.settings import LARGEST_SEED

if TYPE_CHECKING:
    import xarray as xr

OUTPUT = "output"  # the name of what a function gives, where that is one array


class Recorder:
    """What `anisoscope.record` gives: `with` it hooks are in place; afterwards the sample is on the disk.

    Called, it calls the model or function with the same arguments, and gives the same outputs.
    """

    def __init__(self, model: Any, hook_points: Any, to: Any, points: int, seed: int):
        for name, value, least in (("points", points, 8), ("seed", seed, 0)):
            if not isinstance(value, numbers.Integral) or not least <= value <= LARGEST_SEED:
                hint = ": names of modules are hook_points=" if isinstance(value, list | tuple | dict) else ""
                raise ValueError(f"{name} is {value!r}; a whole number from {least} on is needed{hint}")
        self.to = None if to is None else pathlib.Path(to)
        if self.to is not None:
            store.refuse(self.to)
        self.model, self.points, self.seed, self.active = model, int(points), int(seed), True
        self.of_torch = hasattr(model, "register_forward_hook")
        if not callable(model):
            raise ValueError(f"model is a {type(model).__name__}; a torch.nn.Module or a function is needed")
        self.hook_points = hook_points
        if self.of_torch:
            from anisoscope.measurement.sources.hub import hooked

            self.hook_points = hooked.modules_of(model, () if hook_points is None else hook_points)
        elif not (hook_points is None or callable(hook_points)):
            raise ValueError("hook_points: of a function, pass one that makes {name: array} of its output, or none")
        self.stack = contextlib.ExitStack()
        self.start_over()

    def start_over(self) -> None:
        """Forget the sample; what follows is one of its own."""
        self.groups: dict[str, Reservoir] = {}
        self.rng = np.random.default_rng(self.seed)

    def __enter__(self) -> Recorder:
        if self.of_torch:
            from anisoscope.measurement.sources.hub import hooked

            self.stack.enter_context(hooked.attached(self))
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.stack.close()
        if self.to is not None and (self.seen or kind is None):
            self.write()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.model(*args, **kwargs)
        if not self.of_torch:
            self.add(outputs if self.hook_points is None else self.hook_points(outputs))
        return outputs

    def add(self, arrays: Any, mask: Any = None) -> None:
        """One pass by hand: an array or {name: array}, (batch, tokens, width) or (batch, width), of any library.

        Inside of `jax.jit` and `jax.grad` too. `mask` (batch, tokens) is 0 or False where there is padding.
        """
        arrays = dict(arrays) if isinstance(arrays, Mapping) else {OUTPUT: arrays}
        if not self.active:
            return
        import jax

        if any(isinstance(x, jax.core.Tracer) for x in (*arrays.values(), mask)):
            jax.debug.callback(self._add, arrays, mask, ordered=True)
        else:
            self._add(arrays, mask)

    def _add(self, arrays: dict[str, Any], mask: Any) -> None:
        for name, x in arrays.items():
            if getattr(x, "ndim", None) not in (2, 3):
                raise ValueError(f"{name} is {getattr(x, 'shape', type(x).__name__)}; (batch, tokens, width) is needed")
        one = Pass(self, None if mask is None else np.asarray(mask).astype(bool))
        for name, x in arrays.items():
            one.rows[name] = _taken(x, one.drawn(name, tuple(x.shape[:-1])).rows_M)
        one.end()

    @property
    def seen(self) -> int:
        """Rows that were offered so far, at the hook point that has most."""
        if not self.of_torch:
            import jax

            jax.effects_barrier()  # until what compiled programs have told is here
        return max((group.seen for group in self.groups.values()), default=0)

    def sample(self) -> dict[str, np.ndarray]:
        """{name: float32 array}: `vectors` (hook points, points, width), `clusters` and `positions` (points,).

        Where hook points differ in width or positions, an array (points, width) each under its name; the second such
        group has `clusters_1`, and so on. ValueError where nothing was recorded.
        """
        if not self.seen:
            raise ValueError("nothing was recorded: call the model, or the recorder, inside of `with`")
        groups = list(dict.fromkeys(self.groups.values()))
        arrays: dict[str, np.ndarray] = {}
        for number, group in enumerate(groups):
            order, end = group.order_S, f"_{number}" if number else ""
            arrays |= {f"clusters{end}": group.cluster_S[order], f"positions{end}": group.position_S[order]}
            arrays |= {name: x_SD[order] for name, x_SD in group.made.items()}
        if len(groups) == 1 and len({x_SD.shape for x_SD in groups[0].made.values()}) == 1:
            arrays = {"vectors": np.stack([arrays.pop(name) for name in groups[0].made])} | arrays
        return arrays

    def measure(self, **options: Any) -> xr.Dataset:
        """`anisoscope.measure` of the sample, which must be of one width."""
        sample = self.sample()
        if "vectors" not in sample:
            raise ValueError("hook points differ in width or positions; measure the arrays of sample() one by one")
        given = {"clusters": sample["clusters"], "positions": sample["positions"], "names": [*self.groups]}
        return anisoscope.measure(sample["vectors"], **given | options)

    def write(self, to: str | os.PathLike[str] | None = None) -> None:
        """The sample as a .zarr folder, which must not exist yet."""
        to = self.to if to is None else pathlib.Path(to)
        if to is None:
            raise ValueError("to: no place was named; pass write(to=)")
        arrays = {}
        for name, x in self.sample().items():
            dims = {1: ("point",), 2: ("point", f"width_of_{name}"), 3: ("hook_point", "point", "width")}
            arrays[name] = dims[x.ndim], x
        about = {"hook_points": [*self.groups], "seen": self.seen, "seed": self.seed}
        store.write(to, arrays, about | {"anisoscope": anisoscope.__version__})


class Pass:
    """What is taken of one pass, kept when it has ended: one that breaks off leaves nothing."""

    def __init__(self, recorder: Recorder, mask: np.ndarray | None):
        self.recorder, self.mask = recorder, mask
        self.draws: dict[Reservoir, Drawn] = {}
        self.rows: dict[str, Any] = {}
        self.groups = dict(recorder.groups)
        self.first: dict[tuple[int, ...], Reservoir] | None = None if self.groups else {}  # by shape, in the first pass

    def drawn(self, name: str, lead: tuple[int, ...]) -> Drawn:
        """Of a hook point whose output is so many sequences of so many tokens; the same for all of one shape."""
        if name in self.rows:
            raise ValueError(f"hook point {name} runs more than once in a pass; name modules that run once")
        if self.first is not None:
            group = self.first.setdefault(lead, Reservoir(self.recorder.points, self.recorder.rng))
            self.groups[name] = group
        elif name not in self.groups:
            raise ValueError(f"hook point {name} did not run in the first pass")
        group = self.groups[name]
        if group not in self.draws:
            self.draws[group] = group.draw(lead, self.mask)
        if self.draws[group].lead != lead:
            raise ValueError(
                f"hook point {name} is {lead}, another is {self.draws[group].lead}: they were alike before"
            )
        return self.draws[group]

    def end(self) -> None:
        wanted = self.recorder.hook_points if self.recorder.of_torch else self.groups
        if missing := [name for name in wanted if name not in self.rows]:
            raise ValueError(f"hook point {missing[0]} did not run in this pass; leave it out")
        for group, drawn in self.draws.items():
            group.keep(drawn, {name: as_numpy(x) for name, x in self.rows.items() if self.groups[name] is group})
        self.recorder.groups = self.groups


def _taken(x: Any, rows_M: np.ndarray) -> Any:
    """Rows of (batch, tokens, width); on an accelerator taken there, in few programs whatever their number."""
    if isinstance(x, np.ndarray) or not hasattr(x, "devices"):
        return as_numpy(x).reshape(-1, x.shape[-1])[rows_M]
    padded = np.zeros(1 << max(len(rows_M) - 1, 0).bit_length(), np.int64)
    padded[: len(rows_M)] = rows_M
    return np.asarray(x.reshape(-1, x.shape[-1])[padded].astype("float32"))[: len(rows_M)]


def as_numpy(x: Any) -> np.ndarray:
    """In float32, of whatever library."""
    return np.asarray(x.detach().float().cpu().numpy() if hasattr(x, "detach") else x, np.float32)
