"""Where weights are, and what their files are: digests, kinds, types of numbers."""

import hashlib
import pathlib
from typing import Any, NamedTuple

import safetensors
import transformers

KINDS = {".safetensors": "safetensors", ".gguf": "GGUF, quantised"}


class Place(NamedTuple):
    """Where weights are, in the words of `from_pretrained`."""

    name: str  # of the hub, or a folder
    given: dict[str, Any]  # revision, gguf_file, local_files_only
    local: bool


def digest_of(place: Place) -> str:
    """sha256 of the weights' files, as `about["weights_sha256"]` has it; of a hub they must have been fetched."""
    return files_of(place)[0]


def files_of(place: Place) -> tuple[str, str, str]:
    """sha256 of the weights' file, or of the digests of several; their kind; and the commit of a hub."""
    paths, revision = paths_of(place)
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    whole = digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    return whole, KINDS[paths[0].suffix], revision


def types_of(paths: list[pathlib.Path]) -> set[str]:
    """Of the numbers in the files: F32, BF16, F16, …"""
    types = set()
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no dict)
    return types


def paths_of(place: Place) -> tuple[list[pathlib.Path], str]:
    if "gguf_file" in place.given:
        return [pathlib.Path(place.name) / place.given["gguf_file"]], "local file"
    folder, revision = pathlib.Path(place.name), "local folder"
    if not place.local:
        cached = transformers.utils.cached_file(place.name, "config.json", **place.given | {"local_files_only": True})
        folder = pathlib.Path(cached).parent
        revision = folder.name  # the hub's cache names a snapshot by its commit
    names = {"model.safetensors"} if (folder / "model.safetensors").exists() else None
    return sorted(path for path in folder.glob("*.safetensors") if names is None or path.name in names), revision
