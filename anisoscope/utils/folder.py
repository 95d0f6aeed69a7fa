"""A run's folder: its config, lock, corpus and the environment of each session."""

import contextlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

import jax

from anisoscope.utils import checksums, files, mesh
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.settings import flat, format_differences, to_dict

# Settings that may change when a run resumes. A moved corpus is checked by its digest, a
# validation logs its standard error, and measurements keep their own record.
ANYWHERE = ("mesh", "measure", "tangents", "evaluate.draws", "data.path", "data.cache")
VARIABLES = ("JAX_", "XLA_")  # prefixes of environment variables that may change results
SETTINGS_GONE = "restore it from a copy, or name another --workdir"
PATIENCE = 30.0  # seconds for another process to begin or finish its work in a shared folder
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "xarray")


@contextlib.contextmanager
def locked(folder: pathlib.Path, writes: bool = True) -> Iterator[None]:
    """Hold a folder for this process alone; raise UserError if that is impossible.

    With `writes`, checksums are kept and temporary files of a killed process are removed.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(folder / ".lock"))
        except BlockingIOError as error:
            raise _busy(folder) from error
        except OSError as error:
            raise _unwritable(folder, error) from error
        if writes:
            files.remove_temporary(folder)
            stack.enter_context(checksums.recorded_writing(folder))
        yield


@contextlib.contextmanager
def shared(
    folder: pathlib.Path, config: Any
) -> Iterator[Callable[[], contextlib.AbstractContextManager[bool]]]:
    """Hold a folder together with other processes that measure its steps with the same settings.

    The first process prepares the folder as `locked` does. The yielded function makes a context
    that ends the share of this process. It yields whether no other process holds the folder: then
    this one holds it alone, and its files are recorded afterward.
    """
    import fcntl  # not on every system

    def lock(kind: int) -> bool:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @contextlib.contextmanager
    def end() -> Iterator[bool]:
        nonlocal ended
        ended = True
        lock(fcntl.LOCK_UN)  # two processes that end at once would else find each other
        alone = lock(fcntl.LOCK_EX)
        with checksums.recorded_after(folder) if alone else contextlib.nullcontext():
            yield alone
        if alone:
            shutil.rmtree(folder / files.CLAIMS, ignore_errors=True)
            lock(fcntl.LOCK_UN)

    ended, until = False, time.monotonic() + PATIENCE
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(folder / ".lock", "a+"))
            while not (first := lock(fcntl.LOCK_EX)) and not lock(fcntl.LOCK_SH):
                if time.monotonic() > until:
                    raise _busy(folder)
                time.sleep(0.1)
        except OSError as error:
            raise _unwritable(folder, error) from error
        settings = folder / files.CLAIMS / "settings.json"
        if first:
            files.remove_temporary(folder)
            checksums.begin(folder)
            settings.parent.mkdir()
            write_json(settings, to_dict(config))
            fcntl.flock(file, fcntl.LOCK_SH)
        others, now = (flat(x) for x in (read_json(settings, SETTINGS_GONE), to_dict(config)))
        names = [name for name in others.keys() | now.keys() if name.startswith("measure.")]
        if different := format_differences(others, now, names):
            what = f"another process measures {folder} with other settings: {different}"
            raise UserError(f"{what}; wait for it")
        try:
            yield end
        except Exception:
            if not ended:
                with contextlib.suppress(OSError, RunError), end():
                    pass
            raise


@contextlib.contextmanager
def claimed(folder: pathlib.Path, step: int) -> Iterator[bool]:
    """Claim a step of a shared folder; False where another process measures or has measured it.

    The claim of a process that ended before the step was done is free again.
    """
    path, mine = folder / files.CLAIMS / str(step), False
    path.parent.mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(BlockingIOError):
            stack.enter_context(files.locked(path))
            mine = path.stat().st_size == 0
        yield mine
        if mine:
            path.write_text("done\n")


def _busy(folder: pathlib.Path) -> UserError:
    what = f"another process works in {folder}"
    return UserError(f"{what}; wait for it, or name another --workdir")


def _unwritable(folder: pathlib.Path, error: OSError) -> UserError:
    advice = "--stages=figures --figures=DIR draws a finished run elsewhere"
    what = f"--workdir {folder} cannot be locked and written ({error.strerror})"
    return UserError(f"{what}; {advice}")


def claim(folder: pathlib.Path, config: Any, new: bool) -> None:
    """Write the config into the folder; `new` allows a new run."""
    try:
        check_claim(folder, config, new)
        if not (folder / "config.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(folder / "config.json", to_dict(config))
    except OSError as error:
        what = f"--workdir {folder} cannot be written ({error.strerror})"
        raise UserError(f"{what}; name another folder") from error


def check_claim(folder: pathlib.Path, config: Any, new: bool) -> None:
    """Raise UserError if the folder holds another config or other files."""
    path = folder / "config.json"
    if path.exists():
        check_same(path, to_dict(config))
    elif not new:
        advice = "run --stages=train first, or name another --workdir"
        raise UserError(f"{folder} holds no run (no config.json); {advice}")
    elif folder.exists() and not all(files.is_temporary(path.name) for path in folder.iterdir()):
        what = f"--workdir {folder} is not empty and holds no run (no config.json)"
        raise UserError(f"{what}; name another folder")


def check_same(path: pathlib.Path, now: dict) -> None:
    """Raise UserError if the settings at `path` differ from `now`, naming the fields."""
    before, now = flat(read_json(path, SETTINGS_GONE)), flat(now)
    names = [name for name in before.keys() | now.keys() if not name.startswith(ANYWHERE)]
    if different := format_differences(before, now, names):
        advice = "name another --workdir, or pass the same settings"
        raise UserError(f"{path.parent} holds a run with other settings: {different}; {advice}")


def check_corpus(folder: pathlib.Path, corpus: dict | None) -> dict[str, Any]:
    """Read environment.json; raise UserError if it is damaged or names another corpus."""
    path, advice = folder / "environment.json", "move it elsewhere; the command writes a new file"
    record = read_json(path, advice)
    if not {"corpus", "sessions"} <= {*record}:
        raise UserError(f"{path} is damaged; {advice}")
    before = record["corpus"]
    if corpus and "sha256" in corpus and before.get("sha256") != corpus["sha256"]:
        then, now = (f"{x.get('name')}, sha256 {x.get('sha256')}" for x in (before, corpus))
        what = f"{folder} was trained on another corpus ({then}; now {now})"
        raise UserError(f"{what}; pass the first corpus, or name another folder")
    return record


def record_environment(folder: pathlib.Path, corpus: dict | None) -> None:
    """Write environment.json: the corpus, which may not change, and every session's environment."""
    path, record = folder / "environment.json", {"corpus": corpus, "sessions": []}
    if path.exists():
        record = check_corpus(folder, corpus)
    elif any(child.name.isdecimal() for child in (folder / "checkpoints").glob("*")):
        what = f"{path} is missing, which names the corpus that {folder} was trained on"
        print(f"{what}; the current corpus is assumed to be the same")
    versions = {name: metadata.version(name) for name in PACKAGES}
    kind, count = jax.devices()[0].device_kind, len(mesh.devices())
    session = {
        "command": sys.argv,
        "versions": {"python": platform.python_version(), **versions},
        "device": {"kind": kind, "count": count, "cpus": os.cpu_count()},
        "variables": {x: y for x, y in sorted(os.environ.items()) if x.startswith(VARIABLES)},
        "commit": _commit(),
    }
    # the current session comes last
    record["sessions"] = [known for known in record["sessions"] if known != session] + [session]
    write_json(path, record)


def _commit() -> str | None:
    """Return the commit of the code, with '+' if the tree has changes; None outside a checkout."""
    root = pathlib.Path(__file__).parent.parent
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"],
            cwd=root, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip()


def missing_file(path: pathlib.Path, name: str, stage: str) -> UserError:
    """Make the error for a file that an earlier stage writes."""
    return UserError(f"{path / name} does not exist; run --stages={stage} first")
