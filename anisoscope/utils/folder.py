"""A run's folder: its config, lock, corpus and the environment of each session."""

import contextlib
import hashlib
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import jax

from anisoscope.utils import checksums, files, mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.settings import flat, format_differences, to_dict

# Settings that may change when a run resumes. A moved corpus is checked by its digest, a
# validation logs its standard error, and measurements keep their own record.
ANYWHERE = ("mesh", "measure", "tangents", "evaluate.draws", "data.path", "data.cache")
VARIABLES = ("JAX_", "XLA_")  # prefixes of environment variables that may change results
SETTINGS_GONE = "restore it from a copy, or name another --workdir"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "xarray")


@contextlib.contextmanager
def locked_folder(folder: pathlib.Path, shared: bool = False) -> Iterator[None]:
    """Hold a folder, alone or with others that measure steps; raise UserError if that is impossible.

    Who holds it alone removes the temporary files of a killed process, and records its files.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked_file(folder / ".lock", shared=shared))
        except BlockingIOError as error:
            what = f"another process works in {folder}"
            raise UserError(f"{what}; wait for it, or name another --workdir") from error
        except OSError as error:
            advice = "--stages=figures --figures=DIR draws a finished run elsewhere"
            what = f"--workdir {folder} cannot be locked and written ({error.strerror})"
            raise UserError(f"{what}; {advice}") from error
        if shared:
            (folder / checksums.CHECKSUMS).unlink(
                missing_ok=True
            )  # the process that joins writes it
        else:
            files.remove_temporary(folder)
            stack.enter_context(checksums.recorded(folder))
        yield


def claim_folder(folder: pathlib.Path, config: Any, new: bool) -> None:
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
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--workdir {folder} is a file; name a folder")
    if path.exists():
        check_same_settings(path, to_dict(config))
    elif not new:
        advice = "run --stages=train first, or name another --workdir"
        raise UserError(f"{folder} holds no run (no config.json); {advice}")
    elif folder.exists() and not all(files.is_temporary(path.name) for path in folder.iterdir()):
        what = f"--workdir {folder} is not empty and holds no run (no config.json)"
        raise UserError(f"{what}; name another folder")


def check_same_settings(path: pathlib.Path, now: dict) -> None:
    """Raise UserError if the settings at `path` differ from `now`, naming the fields."""
    before, now = flat(read_json(path, SETTINGS_GONE)), flat(now)
    names = [name for name in before.keys() | now.keys() if not name.startswith(ANYWHERE)]
    if different := format_differences(before, now, names):
        advice = "name another --workdir, or pass the same settings"
        raise UserError(f"{path.parent} holds a run with other settings: {different}; {advice}")


def run_settings(config: Any) -> dict[str, Any]:
    """List what all sessions of a run must share, by dotted name."""
    settings = flat(to_dict(config))
    return {name: value for name, value in settings.items() if not name.startswith(ANYWHERE)}


def digest_run(config: Any, corpus_sha256: str) -> str:
    """Digest what makes a run, seeds included: its settings and its text."""
    identity = run_settings(config) | {"corpus_sha256": corpus_sha256}
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def check_corpus(folder: pathlib.Path, corpus: dict | None) -> dict[str, Any]:
    """Read environment.json; raise UserError if it is damaged or names another corpus."""
    path, advice = folder / "environment.json", "move it elsewhere; the command writes a new file"
    record = read_json(path, advice)
    if not {"corpus", "sessions"} <= {*record}:
        raise UserError(f"{path} is damaged; {advice}")
    before = record["corpus"]
    if corpus and "sha256" in corpus and before.get("sha256") != corpus["sha256"]:
        then, now = (f"{x.get('name')} from {x.get('origin')}" for x in (before, corpus))
        digests = (f"{str(x.get('sha256'))[:12]}…" for x in (before, corpus))
        what = f"{folder} was trained on another corpus: {then}, now {now}"
        what = f"{what} (sha256 {', now '.join(digests)})"
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
