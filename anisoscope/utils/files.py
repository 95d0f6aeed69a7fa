"""Files that appear whole or not at all."""

import contextlib
import json
import os
import pathlib
from typing import Any

from anisoscope.utils.errors import UserError


def write(path: pathlib.Path, content: bytes | str, writer: str = "") -> None:
    """Write the file, all or nothing: what stood there before stays until all of the new one is written.

    Where several may write it at once, `writer` tells them apart; the last one stays. An OSError names the file.
    """
    temporary = path.with_name(f"{path.name}{writer}.tmp")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def write_json(path: pathlib.Path, values: Any) -> None:
    write(path, json.dumps(values, indent=2) + "\n")


def read_json(path: pathlib.Path, advice: str) -> dict[str, Any]:
    """The object in a JSON file; UserError, which ends with the advice, where there is none to be read."""
    try:
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise ValueError(f"it holds a {type(found).__name__}, not an object")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); {advice}") from error
    return found
