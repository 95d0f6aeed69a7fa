"""Save and restore checkpoints; the only file that uses Orbax.

A checkpoint holds the items `params` and `train` (optimizer state, step). Its metadata has the digest
of its run, the shapes of the parameters, and a sha256 digest of every leaf. All are
checked at each restore: Orbax restores flipped bits without an error.
"""

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import pathlib
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from anisoscope.training.step import State
from anisoscope.utils import memory, processes
from anisoscope.utils.errors import RunError
from anisoscope.utils.extras import keep_root_logger

with keep_root_logger():
    from orbax.checkpoint import v1 as ocp

policies = ocp.training.preservation_policies
METADATA = "_CHECKPOINT_METADATA"
RENAMED = "it was saved at a step other than {} and then renamed"
OTHER_RUN = "it is of a run with other settings, another seed or another text"
DELETE = "delete it; the same command then resumes from the previous checkpoint"


def checkpoint_items(state: State) -> dict[str, Any]:
    """Split a state into the two items of a checkpoint."""
    return {"params": state.params, "train": {"opt_state": state.opt_state, "step": state.step}}


def saved_steps(folder: pathlib.Path) -> list[int]:
    """List the steps in a folder of checkpoints; unfinished checkpoints have other names."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


class CheckpointReader:
    """Checkpoints of a run for reading; no process waits for another.

    `run` is the digest of the run (`folder.digest_run`); with None, those of any run are read.
    """

    def __init__(self, folder: pathlib.Path, run: str | None):
        self._run = run
        self._folder, self._steps = folder.absolute(), saved_steps(folder)
        with keep_root_logger():
            self._alone, process = ocp.Context(), jax.process_index()
        self._alone.multiprocessing.primary_host = process
        self._alone.multiprocessing.active_processes = {process}

    def steps(self) -> list[int]:
        """List the steps that can be restored."""
        return self._steps

    def restore(self, step: int, abstract: State) -> State:
        """Restore a state in the structure, types and shardings of this abstract state."""
        items = self._restore(step, checkpoint_items(abstract))
        return State(items["params"], **items["train"])

    def restore_params(self, step: int) -> Any:
        """Restore the parameters alone, as NumPy arrays, without a model or an optimizer."""
        try:
            shapes = self._record(step)["params"]
            abstract = jax.tree.map(
                lambda leaf: np.empty(leaf["shape"], leaf["dtype"]),
                shapes,
                is_leaf=lambda node: "dtype" in node,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._damaged(step, error) from error
        return self._restore(step, {"params": abstract})["params"]

    def digest(self, step: int) -> str | None:
        """Digest the saved parameters without restoring them; None where they cannot be read."""
        try:
            leaves = self._record(step)["sha256"].items()
            params = sorted(leaf for leaf in leaves if leaf[0].startswith("['params']"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return hashlib.sha256(json.dumps(params).encode()).hexdigest()

    def check_run(self) -> None:
        """Raise RunError where a checkpoint is of another run, without restoring it."""
        for step in self.steps():
            try:
                belongs = self._record(step)["run"] == self._run
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise self._damaged(step, error) from error
            if not belongs:
                raise self._damaged(step, OTHER_RUN)

    def _path(self, step: int) -> pathlib.Path:
        return self._folder / str(step)

    def _record(self, step: int) -> dict[str, Any]:
        """Read what `save` has recorded; Orbax's own reader keeps memory at every call."""
        return json.loads((self._path(step) / METADATA).read_bytes())["custom_metadata"]

    def _load(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        with self._alone, keep_root_logger():
            return ocp.load_checkpointables(self._path(step), abstract)

    def _restore(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        """Restore items, and compare the digests of their leaves."""
        try:
            items = self._load(step, abstract)
            record = self._record(step)
            run, written = record["run"], record["sha256"]
        except Exception as error:  # Orbax raises many kinds, a bare Exception among them
            raise self._damaged(step, error) from error
        if self._run not in (None, run):
            raise self._damaged(step, OTHER_RUN)
        found = leaf_digests(items)
        ((leaf, digest),) = leaf_digests({"train": {"step": np.int32(step)}}).items()
        if written.get(leaf, digest) != digest:
            raise self._damaged(step, RENAMED.format(step))
        for leaf, digest in found.items():
            if written.get(leaf) != digest:
                raise self._damaged(step, f"{leaf} has changed since it was saved")
        return items

    def _damaged(self, step: int, why: Any) -> Exception:
        if isinstance(why, Exception):
            if memory.is_out(why):
                return why  # an intact checkpoint must not be deleted for it
            if gone := processes.lost(why):
                return gone
        why = (str(getattr(why, "__cause__", None) or why).splitlines() or [repr(why)])[0]
        if (exhausted := os.strerror(errno.EMFILE)) in why:
            return OSError(errno.EMFILE, exhausted, str(self._path(step)))
        return RunError(f"checkpoint {self._path(step)} is damaged: {why[:200]}")


class Checkpoints(CheckpointReader):
    """The checkpoints of a run that is trained; processes wait for one another.

    A step that is not in `kept` (None: all are kept) is deleted by the next save. `run` is the
    digest of the run, which every checkpoint records.
    """

    def __init__(self, folder: pathlib.Path, kept: list[int] | None, run: str):
        super().__init__(folder, run=run)
        self._failed, self._saving = False, None  # the step that is being written, and by what
        scheduled = policies.PreserveAll() if kept is None else policies.CustomSteps(kept)
        self._orbax = ocp.training.Checkpointer(
            self._folder,
            save_decision_policy=ocp.training.save_decision_policies.FixedIntervalPolicy(1),
            preservation_policy=policies.AnyPreservationPolicy([scheduled, policies.LatestN(1)]),
            cleanup_tmp_directories=True,
        )

    def steps(self) -> list[int]:
        """List the saved steps."""
        return sorted(checkpoint.step for checkpoint in self._orbax.checkpoints)

    def _load(self, step: int, abstract: dict[str, Any]) -> dict[str, Any]:
        return self._orbax.load_checkpointables(step, abstract)

    def save(self, step: int, state: State, wait: bool = True) -> None:
        """Write the checkpoint of a step completely or not at all, unless this state is saved.

        Without `wait` the state is written while the caller continues, which must not donate its
        arrays; an error is then raised by the next call of `save`, `wait` or `close`.

        Raises:
            RunError: It cannot be written, or the step is saved with other content.
        """
        self.wait()
        items = checkpoint_items(state)
        now = leaf_digests(items)
        if step in self.steps():
            try:
                saved = leaf_digests(self._restore(step, items))
            except RunError as error:
                raise RunError(f"{error}; {DELETE}") from error
            if saved != now:
                what = "differs from what training gives now"
                raise RunError(f"checkpoint {self._path(step)} {what}; {DELETE}")
            return
        try:
            shapes = jax.tree.map(
                lambda leaf: {"dtype": str(leaf.dtype), "shape": leaf.shape}, state.params
            )
            record = {"run": self._run, "params": shapes, "sha256": now}
            options = {"force": True, "custom_metadata": record}
            response = self._orbax.save_checkpointables_async(step, items, **options)
            if response is None:
                raise RuntimeError("Orbax declined")
        except Exception as error:  # Orbax raises many kinds
            raise self._unsaved(step, error) from error
        self._saving = step, response
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the last save has ended; raise RunError where it could not be written."""
        if self._saving is None:
            return
        (step, response), self._saving = self._saving, None
        try:
            response.result()
        except Exception as error:
            raise self._unsaved(step, error) from error

    def _unsaved(self, step: int, error: Exception) -> Exception:
        if gone := processes.lost(error):
            return gone
        self._failed = True
        why = (str(error).splitlines() or [repr(error)])[0][:200]
        advice = "free disk space or check permissions; the same command resumes"
        what = f"checkpoint {self._path(step)} could not be saved ({why})"
        return RunError(f"{what}: {advice} from the checkpoint before")

    def close(self) -> None:
        """Finish saves and deletions; Orbax raises the error of a failed save again."""
        try:
            self.wait()
        finally:
            with contextlib.suppress(Exception) if self._failed else contextlib.nullcontext():
                self._orbax.close()

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or not processes.lost(error):  # a save would wait for that process
            self.close()


def leaf_digests(tree: Any) -> dict[str, str]:
    """Digest a tree of arrays: {path of leaf: sha256 of its type, shape and bytes}.

    All processes call it together: a leaf that is split over them is gathered, one at a time.
    """
    leaves = {
        jax.tree_util.keystr(x): leaf for x, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
    with concurrent.futures.ThreadPoolExecutor() as pool:  # hashing lets other threads work
        futures = {path: pool.submit(_digest, x) for path, x in leaves.items() if not _is_spread(x)}
        return {
            path: futures[path].result() if path in futures else _digest(_gather(leaf))
            for path, leaf in leaves.items()
        }


def _is_spread(leaf: Any) -> bool:
    """Return whether this process has only a part of a leaf."""
    whole = not isinstance(leaf, jax.Array) or leaf.is_fully_addressable
    return not (whole or leaf.is_fully_replicated)


def _gather(leaf: jax.Array) -> jax.Array:
    everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
    copy = jax.jit(lambda x: x, out_shardings=everywhere)(leaf)
    return jax.block_until_ready(copy)  # on all devices: gloo mixes up the messages of two


def _digest(leaf: Any) -> str:
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        leaf = leaf.addressable_data(0)
    array = np.ascontiguousarray(leaf)
    hasher = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    hasher.update(array.view(np.uint8))
    return hasher.hexdigest()
