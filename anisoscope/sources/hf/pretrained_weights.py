"""Where weights are, and what their files are: digests, kinds, types of numbers.

Of models of a hub that hold pickled weights alone the hub's own bot proposes safetensors, in a pull
request.
"""

import functools
import hashlib
import pathlib
from typing import Any, NamedTuple

import huggingface_hub
import safetensors
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import repo_folder_name

KINDS = {".safetensors": "safetensors", ".gguf": "GGUF"}
BOT = "SFconvertbot"  # nobody else's proposals are read


class Place(NamedTuple):
    """Where weights are, in the words of `from_pretrained`."""

    name: str  # of the hub, or a folder
    given: dict[str, Any]  # revision, gguf_file, local_files_only
    local: bool


def digest_weights(place: Place) -> str:
    """sha256 of the weights' files, as `about["weights_sha256"]` has it; of a hub they must have
    been fetched.
    """
    return describe_files(place)[0]


def describe_files(place: Place) -> tuple[str, str, str]:
    """sha256 of the weights' file, or of the digests of several; their kind; and the commit of a
    hub.
    """
    paths, revision = weight_files(place)
    digests = []
    for path in paths:
        with open(path, "rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    whole = (
        digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    )
    return whole, KINDS[paths[0].suffix], revision


def number_types(paths: list[pathlib.Path]) -> set[str]:
    """Of the numbers in the files: F32, BF16, F16, …"""
    types = set()
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no dict)
    return types


def weight_files(place: Place) -> tuple[list[pathlib.Path], str]:
    if "gguf_file" in place.given:
        return [pathlib.Path(place.name) / place.given["gguf_file"]], "local file"
    folder, revision = pathlib.Path(place.name), "local folder"
    if not place.local:
        cached = transformers.utils.cached_file(
            place.name, "config.json", **place.given | {"local_files_only": True}
        )
        folder = pathlib.Path(cached).parent
        revision = folder.name  # the hub's cache names a snapshot by its commit
    names = {"model.safetensors"} if (folder / "model.safetensors").exists() else None
    return sorted(
        path for path in folder.glob("*.safetensors") if names is None or path.name in names
    ), revision


@functools.cache
def safe_revision(name: str, answers: bool) -> str | None:
    """The revision with safetensors: None, the main one, where it has them, or where nothing better
    is known.
    """
    return _proposed(name) if answers else _fetched(name)


def _proposed(name: str) -> str | None:
    api = huggingface_hub.HfApi()
    try:
        if any(file.endswith(".safetensors") for file in api.list_repo_files(name)):
            return None
        discussions = api.get_repo_discussions(
            name, discussion_type="pull_request", discussion_status="open"
        )
        return next(
            (
                one.git_reference
                for one in discussions
                if one.author == BOT and "safetensors" in one.title
            ),
            None,
        )
    except (
        HfHubHTTPError,
        OSError,
        ValueError,
    ):  # unknown, gated …: whoever reads the model says so
        return None


def _fetched(name: str) -> str | None:
    """Of what an earlier session has brought here: where the main revision is without them, another
    that has them.
    """
    cached = pathlib.Path(constants.HF_HUB_CACHE) / repo_folder_name(
        repo_id=name, repo_type="model"
    )

    def has(reference: pathlib.Path) -> bool:
        return any((cached / "snapshots" / reference.read_text().strip()).glob("*.safetensors"))

    main = cached / "refs" / "main"
    if main.exists() and has(main):
        return None
    proposed = (path for path in (cached / "refs" / "refs" / "pr").glob("*") if has(path))
    return next((f"refs/pr/{path.name}" for path in proposed), None)
