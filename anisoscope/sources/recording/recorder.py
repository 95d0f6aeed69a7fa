"""A recorder: hook points of a model or function, sampled while a loop runs, in bounded memory.

Letters: D width; M points of a pass; S slots of the sample.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import pathlib
import re
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import anisoscope
from anisoscope.sources.recording import recorded_file
from anisoscope.sources.recording.recorded_passes import Pass, as_booleans, check_mask, take_rows
from anisoscope.sources.recording.reservoir import Reservoir
from anisoscope.utils.settings import LARGEST_SEED

if TYPE_CHECKING:
    import xarray as xr

OUTPUT = "output"  # the name of what a function gives, where that is one array
LONGEST = 255  # bytes of a name: encoded, it is that of a file
RESERVED = re.compile(r"(vectors|clusters|positions)(_\d+)?")  # arrays of a sample itself


class Recorder:
    """What `anisoscope.record` gives: `with` it hooks are in place; afterwards the sample is on the
    disk.

    Called, it calls the model or function with the same arguments, and gives the same outputs.
    """

    def __init__(self, model: Any, hook_points: Any, to: Any, points: int, seed: int):
        for name, value, least in (("points", points, 8), ("seed", seed, 0)):
            if not isinstance(value, numbers.Integral) or not least <= value <= LARGEST_SEED:
                hint = (
                    ": names of modules are hook_points="
                    if isinstance(value, list | tuple | dict)
                    else ""
                )
                raise ValueError(
                    f"{name} is {value!r}; a whole number from {least} on is needed{hint}"
                )
        self.to = None if to is None else pathlib.Path(to)
        if self.to is not None:
            recorded_file.refuse(self.to)
        self.model, self.points, self.seed, self.active = model, int(points), int(seed), True
        self.in_torch = hasattr(model, "register_forward_hook")
        if not callable(model):
            raise ValueError(
                f"model is a {type(model).__name__}; a torch.nn.Module or a function is needed"
            )
        self.hook_points = hook_points
        if self.in_torch:
            from anisoscope.sources.hf import hooked, model_calls

            self.hook_points = hooked.find_modules(
                model, () if hook_points is None else hook_points
            )
            self.tokens_first = {
                name: model_calls.tokens_first(model, name, part)
                for name, part in self.hook_points.items()
            }
        elif not (hook_points is None or callable(hook_points)):
            raise ValueError(
                "hook_points: of a function, pass one that makes {name: array} of its output, or none"
            )
        for name in self.hook_points if self.in_torch else ():
            check_name(name)
        self.stack, self.adding = contextlib.ExitStack(), threading.Lock()
        self.start_over()

    def start_over(self) -> None:
        """Forget the sample; what follows is one of its own."""
        self.groups: dict[str, Reservoir] = {}
        self.refused = ""  # why a pass was left out, of the last such pass
        self.rng = np.random.default_rng(self.seed)

    def __enter__(self) -> Recorder:
        if self.in_torch:
            from anisoscope.sources.hf import hooked

            self.stack.enter_context(hooked.attach(self))
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.stack.close()
        if self.to is not None and (self.seen or kind is None):
            self.write()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outputs = self.model(*args, **kwargs)
        if not self.in_torch:
            self.add(outputs if self.hook_points is None else self.hook_points(outputs))
        return outputs

    def add(self, arrays: Any, mask: Any = None) -> None:
        """Record a pass by hand: an array or {name: array}, of any library.

        Each is (batch, tokens, width) or (batch, width). Also inside of `jax.jit`, `jax.grad` and
        `jax.checkpoint`.

        Args:
            arrays: one array, or arrays by name.
            mask: (batch, tokens), 0 or False at padding, 1 or True elsewhere.

        Raises:
            ValueError: a mask of another shape or with other values, or arrays that do not fit
                those before; in one line. The pass is left out.
        """
        arrays = dict(arrays) if isinstance(arrays, Mapping) else {OUTPUT: arrays}
        if not self.active:
            return
        mask = mask if mask is None or hasattr(mask, "shape") else np.asarray(mask)
        for name, x in arrays.items():
            check_name(name)
            if getattr(x, "ndim", None) not in (2, 3):
                what = getattr(x, "shape", type(x).__name__)
                raise ValueError(f"{name} is {what}; (batch, tokens, width) is needed")
            if mask is not None:
                check_mask(name, tuple(x.shape[:-1]), mask)
        import jax

        if any(isinstance(x, jax.core.Tracer) for x in (*arrays.values(), mask)):
            from anisoscope.sources.recording import recorded_once

            recorded_once.send(self._add, arrays, mask)
        else:
            self._add(arrays, mask)

    def _add(self, arrays: dict[str, Any], mask: Any) -> None:
        mask = None if mask is None else as_booleans(mask)
        with self.adding:
            current = Pass(self)
            for name, x in arrays.items():
                lead = tuple(x.shape[:-1])
                own = mask if mask is not None and mask.shape == lead else None
                current.rows[name] = take_rows(x, current.drawn(name, lead, own).rows_M, name)
            current.end()

    def leave_out(self, why: Exception) -> None:
        """Warn that a pass of a model is not recorded; the model's own pass goes on."""
        self.refused = (str(why).splitlines() or [repr(why)])[0]
        warnings.warn(f"a pass was not recorded: {self.refused}", stacklevel=3)

    @property
    def seen(self) -> int:
        """Rows that were offered so far, at the hook point that has most."""
        if not self.in_torch:
            import jax

            jax.effects_barrier()  # until what compiled programs have told is here
        return max((group.seen for group in self.groups.values()), default=0)

    def sample(self) -> dict[str, np.ndarray]:
        """{name: float32 array}: `vectors` (hook points, points, width), `clusters` and `positions`
        (points,).

        Where hook points differ in width or positions, an array (points, width) each under its
        name; the second such group has `clusters_1`, and so on. ValueError where nothing was
        recorded.
        """
        if not self.seen:
            hint = "call the model, or the recorder, inside of `with`"
            raise ValueError(f"nothing was recorded: {self.refused or hint}")
        groups = list(dict.fromkeys(self.groups.values()))
        arrays: dict[str, np.ndarray] = {}
        for number, group in enumerate(groups):
            order, end = group.order_S, f"_{number}" if number else ""
            arrays |= {
                f"clusters{end}": group.cluster_S[order],
                f"positions{end}": group.position_S[order],
            }
            arrays |= {name: x_SD[order] for name, x_SD in group.made.items()}
        if len(groups) == 1 and len({x_SD.shape for x_SD in groups[0].made.values()}) == 1:
            arrays = {"vectors": np.stack([arrays.pop(name) for name in groups[0].made])} | arrays
        return arrays

    def measure(self, **options: Any) -> xr.Dataset:
        """`anisoscope.measure` of the sample, which must be of one width."""
        sample = self.sample()
        if "vectors" not in sample:
            raise ValueError(
                "hook points differ in width or positions; measure the arrays of sample() one by one"
            )
        given = {
            "clusters": sample["clusters"],
            "positions": sample["positions"],
            "names": [*self.groups],
        }
        return anisoscope.measure(sample["vectors"], **given | options)

    def write(self, to: str | os.PathLike[str] | None = None) -> None:
        """Write the sample as a .zarr folder, which must not exist yet.

        Each array is a folder of its name, percent-encoded: `a/b` is `a%2Fb`.
        """
        to = self.to if to is None else pathlib.Path(to)
        if to is None:
            raise ValueError("to: no place was named; pass write(to=)")
        arrays = {}
        for name, x in self.sample().items():
            dims = {
                1: ("point",),
                2: ("point", f"width_of_{name}"),
                3: ("hook_point", "point", "width"),
            }
            arrays[name] = dims[x.ndim], x
        about = {"hook_points": [*self.groups], "seen": self.seen, "seed": self.seed}
        recorded_file.write(to, arrays, about | {"anisoscope": anisoscope.__version__})


def check_name(name: Any) -> None:
    """Raise ValueError where a hook point cannot be called so in a sample."""
    if not isinstance(name, str) or not 0 < len(recorded_file.encoded(name)) <= LONGEST:
        raise ValueError(
            f"hook point {str(name)[:40]!r}: a word of at most {LONGEST} letters is needed"
        )
    if RESERVED.fullmatch(name):
        raise ValueError(
            f"hook point {name!r}: a sample has an array of its own of this name; rename it"
        )
