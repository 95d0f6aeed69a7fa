"""Record what tables were made from in digests.json, and leave those alone that are up to date.

{table: {"from": {name: sha256}, "settings": sha256, "files": {name: sha256}}}
"""

import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import numpy as np

import anisoscope
from anisoscope.utils import checksums
from anisoscope.utils.files import read_json, write_json

DIGESTS = "digests.json"
TABLE_PACKAGES = ("numpy", "pandas", "scipy", "xarray")  # besides this one
Digests = dict[str, str]  # sha256 by name


def write_outdated(
    folder: pathlib.Path,
    table: str,
    made_from: Digests,
    settings: Any,
    write: Callable[[], Iterable[pathlib.Path]],
) -> list[pathlib.Path]:
    """Call `write` unless a table is up to date; return the files that belong to it.

    It is up to date where it was written by this code, from the same digests and settings, and each
    of its files is as it was written. The record is removed before `write` and made after it, so
    that a table that is written in part has none.
    """
    record = {"from": made_from, "settings": digest_settings([settings, digest_code()])}
    known = _read(folder)
    before = known.pop(table, {})
    files = before.pop("files", {})
    if files and before == record and all(_digest(folder / name) == files[name] for name in files):
        return [folder / name for name in files]
    if before:
        write_json(folder / DIGESTS, known)
    paths = list(write())
    files = {path.relative_to(folder).as_posix(): checksums.digest(path) for path in paths}
    write_json(folder / DIGESTS, known | {table: record | {"files": files}})
    return paths


def read_made_from(folder: pathlib.Path, table: str) -> Digests | None:
    """Read what a table was made from; None where that is unknown."""
    return _read(folder).get(table, {}).get("from")


def digest_settings(settings: Any) -> str:
    """Digest nested settings, which may hold numbers and arrays of NumPy."""
    text = json.dumps(settings, sort_keys=True, default=lambda x: np.asarray(x).tolist())
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def digest_code() -> str:
    """Digest the files of this package, and the versions of others that make tables."""
    versions = {name: metadata.version(name) for name in TABLE_PACKAGES}
    sources = []
    for parent, _, names in os.walk(pathlib.Path(anisoscope.__file__).parent, followlinks=True):
        paths = (pathlib.Path(parent, name) for name in names)
        sources += [checksums.digest(path) for path in paths if path.suffix in (".py", ".csv")]
    return digest_settings([versions, sorted(sources)])


def _digest(path: pathlib.Path) -> str | None:
    return checksums.digest(path) if path.is_file() else None


def _read(folder: pathlib.Path) -> dict[str, Any]:
    path = folder / DIGESTS
    return read_json(path, "delete it, and repeat the command") if path.exists() else {}
