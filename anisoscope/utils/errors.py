"""The errors that speak to the user. The message is one line: what, where, what to do."""

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# files open at once: says nothing of the file that is read
EXHAUSTED = {errno.EMFILE, errno.ENFILE}
FORBIDDEN = {errno.EACCES, errno.EPERM}
RESUMES = "and the same command resumes there"
# name of a thread in the middle of a compilation: a process ends without it
UNSTOPPABLE = "unstoppable"


class UserError(Exception):
    """Bad input, something the user can put right before anything has run: exit code 2."""


class Stopped(Exception):
    """The user asked to stop, and what was at hand is saved; exit code 0."""


class RunError(Exception):
    """A run that cannot go on: exit code 1."""


class Lost(Exception):
    """Another process has ended: exit code 1, at once, as JAX would wait for it.

    No RunError, by which a checkpoint is known to be damaged.
    """


@contextlib.contextmanager
def as_value_error() -> Iterator[None]:
    """Raise a UserError as the ValueError that callers of the library expect."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from error


def format_os_error(error: OSError) -> str:
    """Say what the system says, of which file, and what helps."""
    what = error.strerror or str(error)
    if error.filename and error.strerror:
        what = f"{error.filename}: {what}"
    if error.errno in EXHAUSTED:
        return f"{what}; allow more with ulimit -n 1024, {RESUMES}"
    if error.errno in FULL:
        return f"{what}; make room on the disk, {RESUMES}"
    if error.errno in FORBIDDEN:
        return f"{what}; change the rights of the file or of its folder, {RESUMES}"
    if error.errno == errno.EROFS:
        return f"{what}; name a folder on another disk with --workdir= or --figures="
    return what


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Ask whether a close name was meant; empty where none is."""
    near = difflib.get_close_matches(word, [*names], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
