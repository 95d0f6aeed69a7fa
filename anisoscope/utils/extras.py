"""The extras of the package: which of them installs a library, and the line when it is missing.

Libraries of the extras are imported where they are used, so that the core alone measures arrays.
"""

import contextlib
import logging
from collections.abc import Iterator

EXTRAS = {  # extra: names under which its libraries are imported
    "files": ("h5netcdf", "h5py", "safetensors"),
    "plots": ("matplotlib", "plotly"),
    "pretrained": ("accelerate", "gguf", "torch", "transformers"),
    "train": (
        "array_record",
        "flax",
        "importlib_resources",
        "optax",
        "orbax",
        "tensorflow_datasets",
    ),
}


class MissingLibraryError(ImportError):
    """An import that fails, with the extra to install in its one-line message."""


@contextlib.contextmanager
def required_by(what: str) -> Iterator[None]:
    """Name the extra to install where an import in the block fails; `what` needs it."""
    try:
        yield
    except ImportError as error:
        if isinstance(error, MissingLibraryError) or not (advice := advise(error)):
            raise
        raise MissingLibraryError(f"{what}: {advice}") from error


@contextlib.contextmanager
def keep_root_logger() -> Iterator[None]:
    """Leave the caller's root logger without the handler that absl adds at its first message."""
    handlers = [*logging.root.handlers]
    try:
        yield
    finally:
        for handler in [x for x in logging.root.handlers if x not in handlers]:
            logging.root.removeHandler(handler)


def advise(error: ImportError) -> str:
    """Say which extra installs what an import lacks; empty for a library of none of them."""
    if isinstance(error, MissingLibraryError):
        return str(error)
    library = (error.name or "").partition(".")[0]
    extra = next((extra for extra, names in EXTRAS.items() if library in names), "")
    install = f'pip install "anisoscope[{extra}]" (in a checkout: ".[{extra}]")'
    return f"{error}; {install}" if extra else ""
