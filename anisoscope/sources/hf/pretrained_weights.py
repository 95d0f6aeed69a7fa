"""Where weights are, and what their files hold: digests, kinds, types of numbers.

Where a model of a hub has pickled weights alone, the hub's own bot proposes safetensors in a pull
request: that revision is read instead.
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
BOT = "SFconvertbot"  # nobody else's proposals are read
TIMEOUT = 10  # seconds after which a hub that does not answer is given up


class Place(NamedTuple):
    """Where weights are, in the words of `from_pretrained`."""

    name: str  # of the hub, or a folder
    options: dict[str, Any]  # revision, gguf_file, local_files_only
    local: bool

    @property
    def is_gguf(self) -> bool:
        return "gguf_file" in self.options


def digest_weights(place: Place) -> str:
    """Return the sha256 of the weights' files; of a hub they must have been fetched."""
    return describe_files(place)[0]


def describe_files(place: Place) -> tuple[str, str, str]:
    """Return sha256 of the weights' file (of several: of their digests), its kind, its revision."""
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
    """Return the types of the numbers in safetensors files: F32, BF16, F16, …"""
    types = set()
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no dict)
    return types


def weight_files(place: Place) -> tuple[list[pathlib.Path], str]:
    """Return the files of the weights, and their revision: the commit, of a hub."""
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
    """Return whether there is a hub; asked once, since the libraries ask six times and wait."""
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
    """Return the revision with safetensors; None: the main one has them, or no other is known."""
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
    except (HfHubHTTPError, OSError, ValueError):  # unknown, gated …: whoever reads it says so
        pass
    return None


def _cached_revision(name: str) -> str | None:
    """Look among what an earlier session has fetched."""
    folder = repo_folder_name(repo_id=name, repo_type="model")
    cached = pathlib.Path(constants.HF_HUB_CACHE) / folder
    references = [cached / "refs" / "main", *(cached / "refs" / "refs" / "pr").glob("*")]
    for path in filter(pathlib.Path.exists, references):
        if any((cached / "snapshots" / path.read_text().strip()).glob("*.safetensors")):
            return None if path.name == "main" else f"refs/pr/{path.name}"
    return None
