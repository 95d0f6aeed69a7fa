"""What is asked for beside an experiment."""

import pathlib
from typing import NamedTuple

from absl.flags import FlagValues


class Request(NamedTuple):
    """Flags, settings and the folder."""

    given: FlagValues
    settings: dict[str, str | None]  # that were given, by dotted name
    root: pathlib.Path  # the folder to work in
    title: str
