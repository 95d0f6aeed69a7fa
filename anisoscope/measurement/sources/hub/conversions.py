"""Models of a hub that hold pickled weights alone: the hub's own bot proposes their safetensors, in a pull request."""

import functools
import pathlib

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.file_download import repo_folder_name

BOT = "SFconvertbot"  # nobody else's proposals are read


@functools.cache
def revision_of(name: str, answers: bool) -> str | None:
    """The revision with safetensors: None, the main one, where it has them, or where nothing better is known."""
    return _proposed(name) if answers else _fetched(name)


def _proposed(name: str) -> str | None:
    api = huggingface_hub.HfApi()
    try:
        if any(file.endswith(".safetensors") for file in api.list_repo_files(name)):
            return None
        discussions = api.get_repo_discussions(name, discussion_type="pull_request", discussion_status="open")
        return next(
            (one.git_reference for one in discussions if one.author == BOT and "safetensors" in one.title), None
        )
    except (HfHubHTTPError, OSError, ValueError):  # unknown, gated …: whoever reads the model says so
        return None


def _fetched(name: str) -> str | None:
    """Of what an earlier session has brought here: where the main revision is without them, another that has them."""
    cached = pathlib.Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model")

    def has(reference: pathlib.Path) -> bool:
        return any((cached / "snapshots" / reference.read_text().strip()).glob("*.safetensors"))

    main = cached / "refs" / "main"
    if main.exists() and has(main):
        return None
    proposed = (path for path in (cached / "refs" / "refs" / "pr").glob("*") if has(path))
    return next((f"refs/pr/{path.name}" for path in proposed), None)
