"""Locate weights and describe their files: digests, kinds, number types.

Where a model of a hub has pickled weights alone, the hub's own bot proposes safetensors in a pull
request; that revision is read instead.
"""

import functools
import hashlib
import os
import pathlib
import urllib.error
import urllib.request
from typing import Any, NamedTuple

import huggingface_hub
import safetensors
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import repo_folder_name

KINDS = {".safetensors": "safetensors", ".gguf": "GGUF"}
BOT = "SFconvertbot"  # the only author whose proposals are read
TIMEOUT = 10  # seconds to wait for a hub


class Place(NamedTuple):
    """The location of weights, as arguments of `from_pretrained`."""

    name: str  # name on the hub, or a folder
    options: dict[str, Any]  # revision, gguf_file, local_files_only
    local: bool

    @property
    def is_gguf(self) -> bool:
        return "gguf_file" in self.options


def digest_weights(place: Place) -> str:
    """Return the sha256 of the weight files; files of a hub must have been downloaded."""
    return describe_files(place)[0]


def describe_files(place: Place) -> tuple[str, str, str]:
    """Return sha256, kind and revision of the weight files.

    Several files have the sha256 of their digests.
    """
    paths, revision = weight_files(place)
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    digest = (
        digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    )
    return digest, KINDS[paths[0].suffix], revision


def number_types(paths: list[pathlib.Path]) -> set[str]:
    """Return the number types in safetensors files, such as F32, BF16 and F16."""
    types = set()
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no dict)
    return types


def weight_files(place: Place) -> tuple[list[pathlib.Path], str]:
    """Return the weight files and their revision, the commit for a hub."""
    if place.is_gguf:
        return [pathlib.Path(place.name) / place.options["gguf_file"]], "local file"
    folder, revision = pathlib.Path(place.name), "local folder"
    if not place.local:
        options = place.options | {"local_files_only": True}
        folder = pathlib.Path(
            transformers.utils.cached_file(place.name, "config.json", **options)
        ).parent
        revision = folder.name  # the hub's cache names a snapshot by its commit
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"], revision
    return sorted(folder.glob("*.safetensors")), revision


@functools.cache
def hub_answers() -> bool:
    """Return whether the hub answers; cached, since the libraries ask six times and wait."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
        return False
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    request = urllib.request.Request(address, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT).close()
    except urllib.error.HTTPError:  # an answer too
        return True
    except OSError:
        return False
    return True


@functools.cache
def safe_revision(name: str) -> str | None:
    """Return the revision with safetensors; None: the main revision, or none is known."""
    return _proposed_revision(name) if hub_answers() else _cached_revision(name)


def _proposed_revision(name: str) -> str | None:
    api = huggingface_hub.HfApi()
    try:
        if any(file.endswith(".safetensors") for file in api.list_repo_files(name)):
            return None
        kind = {"discussion_type": "pull_request", "discussion_status": "open"}
        for request in api.get_repo_discussions(name, **kind):
            if request.author == BOT and "safetensors" in request.title:
                return request.git_reference
    except (
        HfHubHTTPError,
        OSError,
        ValueError,
    ):  # unknown, gated …: reported when the model is read
        pass
    return None


def _cached_revision(name: str) -> str | None:
    """Look in the cache of earlier downloads."""
    folder = repo_folder_name(repo_id=name, repo_type="model")
    cached = pathlib.Path(constants.HF_HUB_CACHE) / folder
    references = [cached / "refs" / "main", *(cached / "refs" / "refs" / "pr").glob("*")]
    for path in filter(pathlib.Path.exists, references):
        if any((cached / "snapshots" / path.read_text().strip()).glob("*.safetensors")):
            return None if path.name == "main" else f"refs/pr/{path.name}"
    return None
