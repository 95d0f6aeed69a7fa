"""Checkpoints: the only file that knows Orbax.

A checkpoint holds the items `params` and `train` (optimizer state, step) and, in its metadata, a
sha256 digest of every leaf, checked at each restore, because Orbax restores flipped bits without a
word.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import sys
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from anisoscope.training.digests import digests
from anisoscope.utils import checksums, processes
from anisoscope.utils.errors import RunError
from anisoscope.utils.files import check_held, from_json, refuse_link

policies = ocp.training.preservation_policies


class _Pending(NamedTuple):
    """A checkpoint that is being written, and Orbax's promise."""

    step: int
    response: Any


def saved(folder: pathlib.Path) -> list[int]:
    """Steps that the names in a folder of checkpoints tell; what is being written has another
    name.
    """
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


class _Reader:
    """What reads of Orbax's Checkpointer, which itself waits for all processes of a cluster at
    every turn.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self.checkpoints = [types.SimpleNamespace(step=step) for step in saved(folder)]
        self._alone, here = ocp.Context(), jax.process_index()
        self._alone.multiprocessing.primary_host = here
        self._alone.multiprocessing.active_processes = {here}

    def load_checkpointables(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        with self._alone:
            return ocp.load_checkpointables(self._folder / str(step), abstract)

    def checkpointables_metadata(self, step: int) -> Any:
        with self._alone:
            return ocp.checkpointables_metadata(self._folder / str(step))

    def close(self) -> None:
        pass


class Checkpoints:
    """Those of a run: a step outside `kept` (None: all) lives until the next save. `reading` waits
    for no process.
    """

    def __init__(self, folder: pathlib.Path, kept: list[int] | None, reading: bool = False):
        self._kept = kept
        self._reading = reading
        self._folder = folder.absolute()
        self._failed = False
        self._pending: list[_Pending] = []  # one at most
        refuse_link(self._folder)
        self._open()

    def _open(self) -> None:
        if self._reading:
            self._orbax = _Reader(self._folder)
            return
        # among them what Orbax writes to, by names that can be foreseen
        for path in self._folder.glob("*[!0-9]*"):
            refuse_link(path)
        if self._kept is not None and processes.is_first():
            for step in {*saved(self._folder)} - {*self._kept}:  # the next save removes it
                checksums.forget(self._folder / str(step))
        kept = policies.PreserveAll() if self._kept is None else policies.CustomSteps(self._kept)
        self._orbax = ocp.training.Checkpointer(
            self._folder,
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy([kept, policies.LatestN(1)]),
            cleanup_tmp_directories=True,
        )

    def steps(self) -> list[int]:
        """Of all that are saved, or being saved."""
        return sorted({*self._written(), *(pending.step for pending in self._pending)})

    def _written(self) -> list[int]:
        return [checkpoint.step for checkpoint in self._orbax.checkpoints]

    def save(self, step: int, params: Any, train: Any) -> None:
        """Write the checkpoint of `step`, all of it or nothing."""
        self.begin(step, params, train)
        self.wait()

    def begin(self, step: int, params: Any, train: Any) -> None:
        """As `save`, while training goes on: the items are copied and may change; `wait` raises
        what fails.

        Several processes wait for it at once: one that is lost while Orbax waits for it would hold
            up the others.
        """
        self.wait()
        check_held(self._folder)
        items = {"params": params, "train": train}
        leaves = digests(items)
        with self._saving(step):
            response = self._orbax.save_checkpointables_async(
                step, items, force=True, custom_metadata={"sha256": leaves}
            )
            if response is None:
                raise RuntimeError("Orbax declined")
            self._pending = [_Pending(step, response)]
        if jax.process_count() > 1:
            self.wait()

    def settle(self) -> None:
        """Take in what is written by now, or raise what failed, without waiting for more."""
        if self._pending and not self._orbax.is_saving_in_progress():
            self.wait()

    def wait(self) -> None:
        """Until everything is on the disk."""
        pending, self._pending = self._pending, []
        for step, response in pending:
            with self._saving(step):
                if not response.result():
                    raise RuntimeError("Orbax declined")

    @contextlib.contextmanager
    def _saving(self, step: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # Orbax raises many kinds
            if gone := processes.lost(error):
                raise gone from error
            self._failed = True
            why = (str(error).splitlines() or [repr(error)])[0][:200]
            raise RunError(
                f"checkpoint {self._folder / str(step)} could not be saved ({why}): make room on the disk or check "
                "its rights; the same command resumes from the checkpoint before"
            ) from error

    def holds(self, step: int, params: Any, train: Any) -> bool:
        """Whether the checkpoint of `step` is whole and these items bit for bit."""
        self.wait()
        items = {"params": params, "train": train}
        try:
            return digests(self._verified(step, items)) == digests(items)
        except RunError:
            return False

    def restore(self, step: int, params: Any, train: Any) -> tuple[Any, Any]:
        """The items in the structure, types and shardings of the abstract `params` and `train`."""
        items = self._verified(step, {"params": params, "train": train})
        return items["params"], items["train"]

    def restore_params(self, step: int) -> Any:
        """Parameters alone, as NumPy arrays, with no model or optimizer at hand."""
        self.wait()
        try:
            stored = self._orbax.checkpointables_metadata(step).metadata["params"]
        except Exception as error:  # Orbax raises many kinds, a bare Exception among them
            raise self._damaged(step, error) from error
        return self._verified(
            step, {"params": jax.tree.map(lambda a: np.empty(a.shape, a.dtype), stored)}
        )["params"]

    def digest(self, step: int) -> str | None:
        """One digest of the parameters as they were saved, read without restoring them; None where
        it is not there.
        """
        try:
            record = from_json((self._folder / str(step) / "_CHECKPOINT_METADATA").read_bytes())
            leaves = record["custom_metadata"]["sha256"]
            params = sorted(
                (path, leaf) for path, leaf in leaves.items() if path.startswith("['params']")
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return hashlib.sha256(json.dumps(params).encode()).hexdigest()

    def check(self, step: int) -> None:
        """Raise RunError where a leaf has changed since it was saved, whatever shapes they have."""
        self.wait()
        try:
            stored = self._orbax.checkpointables_metadata(step)
            abstract = jax.tree.map(lambda a: np.empty(a.shape, a.dtype), stored.metadata)
            items = self._orbax.load_checkpointables(
                step, {name: abstract[name] for name in ("params", "train")}
            )
            written = stored.custom_metadata["sha256"]
            if sorted(digests(items).values()) != sorted(written.values()):
                raise ValueError("a leaf has changed since it was saved")
            if int(items["train"]["step"]) != step:
                raise ValueError(
                    f"it was saved at another step than {step}, and has been renamed since"
                )
        except Exception as error:  # Orbax raises many kinds
            raise self._damaged(step, error) from error

    def _verified(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        self.wait()
        try:
            items = self._orbax.load_checkpointables(step, abstract)
            written = self._orbax.checkpointables_metadata(step).custom_metadata["sha256"]
        except Exception as error:
            raise self._damaged(step, error) from error
        own = digests({"train": {"step": np.int32(step)}})
        if any(written.get(leaf, digest) != digest for leaf, digest in own.items()):
            raise self._damaged(
                step, f"it was saved at another step than {step}, and has been renamed since"
            )
        for leaf, digest in digests(items).items():
            if written.get(leaf) != digest:
                raise self._damaged(step, f"{leaf} has changed since it was saved")
        return items

    def _damaged(self, step: int, why: Any) -> Exception:
        if isinstance(why, Exception) and (gone := processes.lost(why)):
            return gone
        why = (str(getattr(why, "__cause__", None) or why).splitlines() or [repr(why)])[0]
        # what is sound must not be moved aside for it
        if (said := os.strerror(errno.EMFILE)) in why:
            raise OSError(errno.EMFILE, said, str(self._folder / str(step)))
        return RunError(f"checkpoint {self._folder / str(step)} is damaged: {why[:200]}")

    def set_aside(self, step: int) -> pathlib.Path:
        """Rename a damaged checkpoint so that its step can be saved again; nothing is deleted."""
        self.wait()
        self._orbax.close()
        target = next(
            path
            for i in range(1000)
            if not (path := self._folder.with_name("damaged_checkpoints") / f"{step}.{i}").exists()
        )

        def move() -> None:
            target.parent.mkdir(exist_ok=True)
            checksums.forget(self._folder / str(step))
            (self._folder / str(step)).rename(target)

        processes.on_first(move)
        self._open()
        return target

    def readable(self) -> list[int]:
        """Steps that can be restored now: all of them."""
        return self.steps()

    def close(self) -> None:
        failing = sys.exc_info()[0] is not None  # that is told, and not what came of it
        try:
            with contextlib.suppress(RunError) if failing else contextlib.nullcontext():
                self.wait()
        finally:
            with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
                self._orbax.close()  # raises the error of a failed save once more


class Beside:
    """The checkpoints of a schedule, for reading; and others of the same run that lie in a folder
    of their own.
    """

    def __init__(self, scheduled: Checkpoints, others: Checkpoints):
        self._scheduled, self._others = scheduled, others

    def steps(self) -> list[int]:
        """Of the schedule: others are no part of what a checkpoint is compared with."""
        return self._scheduled.steps()

    def readable(self) -> list[int]:
        """Those too that lie beside."""
        return sorted({*self._scheduled.steps(), *self._others.steps()})

    def restore_params(self, step: int) -> Any:
        return self._of(step).restore_params(step)

    def restore(self, step: int, params: Any, train: Any) -> tuple[Any, Any]:
        return self._of(step).restore(step, params, train)

    def digest(self, step: int) -> str | None:
        return self._of(step).digest(step)

    def close(self) -> None:
        self._scheduled.close()
        self._others.close()

    def _of(self, step: int) -> Checkpoints:
        return self._scheduled if step in self._scheduled.steps() else self._others
