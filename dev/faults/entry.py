"""What an entry of the lists says."""

from typing import NamedTuple


class Fault(NamedTuple):
    name: str  # what would be wrong
    file: str  # from the root of the checkout
    old: str  # occurs in it once
    new: str
    tests: tuple[str, ...] = ()  # files or folders beside those that mirror the file
