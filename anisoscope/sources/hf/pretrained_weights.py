"""Find the weights of a model, and describe their files: digest, kind, number types.

Where a model of a hub has pickled weights alone, the hub's own bot proposes safetensors in a pull
request; that revision is read instead.
"""

import functools
import hashlib
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

from anisoscope.config.pretrained_config import REVISIONS, find_revisions
from anisoscope.utils.errors import SettingError, UserError

FORMATS = {".safetensors": "safetensors", ".gguf": "GGUF"}
BOT = "SFconvertbot"  # the only author whose proposals are read
TIMEOUT = 10  # seconds to wait for a hub


class WeightLocation(NamedTuple):
    """Where weights are, as arguments of `from_pretrained`."""

    name: str  # name on the hub, or a folder
    options: dict[str, Any]  # revision, gguf_file, local_files_only
    local: bool

    @property
    def is_gguf(self) -> bool:
        return "gguf_file" in self.options


def find_weights(name: str, revision: str | None) -> WeightLocation:
    """Find the weights of a model; UserError where a local name leads to no readable weights."""
    path = pathlib.Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"{name} does not exist; check the path")
        if revision is not None:
            what = f"a GGUF file ({name}) has no revisions"
            raise SettingError(f"pretrained.revisions: {what}; name a folder", REVISIONS)
        return WeightLocation(str(path.parent), {"gguf_file": path.name}, True)
    if path.is_dir():
        folder = path if revision is None else path / revision
        if not (folder / "config.json").is_file():
            what = f"{folder} holds no model (no config.json)"
            if steps := find_revisions(str(folder)):
                what = f"{folder} holds the checkpoints {', '.join(steps[:3])}"
                what += " …" * (len(steps) > 3)
                raise SettingError(f"{what}; name them in pretrained.revisions", REVISIONS)
            raise UserError(f"{what}; name another folder, or a .gguf file")
        if not any(folder.glob("*.safetensors")):
            what = f"{folder} holds no *.safetensors"
            raise UserError(f"{what}; pickled weights are never read: convert them")
        return WeightLocation(str(folder), {}, True)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        what = f"{name}: no such folder exists, and a hub has no such name"
        raise UserError(f"{what}; check the path")
    revision = revision or safe_revision(name)
    options: dict[str, Any] = {} if revision is None else {"revision": revision}
    options |= {} if hub_answers() else {"local_files_only": True}
    return WeightLocation(name, options, False)


def digest_weights(location: WeightLocation) -> str:
    """Return the sha256 of the weight files, or of their digests where there are several.

    Files of a hub must have been downloaded.
    """
    digests = []
    for path in weight_files(location)[0]:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    joined = hashlib.sha256("".join(digests).encode()).hexdigest()
    return digests[0] if len(digests) == 1 else joined


def digest_model(location: WeightLocation, weights_sha256: str) -> str:
    """Return the sha256 of the weights' digest and of config.json, which a GGUF file has inside."""
    if location.is_gguf:
        return weights_sha256
    settings = weight_files(location)[0][0].with_name("config.json").read_bytes()
    return hashlib.sha256(weights_sha256.encode() + settings).hexdigest()


def number_types(paths: list[pathlib.Path]) -> set[str]:
    """Return the number types in safetensors files, such as F32, BF16 and F16."""
    types = set()
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no dict)
    return types


def weight_files(location: WeightLocation) -> tuple[list[pathlib.Path], str]:
    """Return the weight files and their revision, the commit for a hub."""
    if location.is_gguf:
        return [pathlib.Path(location.name) / location.options["gguf_file"]], "local file"
    folder, revision = pathlib.Path(location.name), "local folder"
    if not location.local:
        options = location.options | {"local_files_only": True}
        cached = transformers.utils.cached_file(location.name, "config.json", **options)
        folder = pathlib.Path(cached).parent
        revision = folder.name  # the hub's cache names a snapshot by its commit
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"], revision
    return sorted(folder.glob("*.safetensors")), revision


@functools.cache
def hub_answers() -> bool:
    """Return whether the hub answers; cached, since the libraries ask six times and wait."""
    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
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
        proposals = {"discussion_type": "pull_request", "discussion_status": "open"}
        for request in api.get_repo_discussions(name, **proposals):
            if request.author == BOT and "safetensors" in request.title:
                return request.git_reference
    except (HfHubHTTPError, OSError, ValueError):  # reported when the model is read
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
