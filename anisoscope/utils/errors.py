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
    """The user asked to stop, and what was at hand is finished and saved. The message says where;
    exit code 0.
    """


class RunError(Exception):
    """A run that cannot go on: exit code 1."""


class Lost(Exception):
    """Another process of the cluster has ended: exit code 1, at once, as JAX would wait for that
    one.

    No RunError, by which a checkpoint is known to be damaged.
    """


@contextlib.contextmanager
def as_value_error() -> Iterator[None]:
    """What the command tells as a UserError is a ValueError in somebody's own code."""
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from error


def format_os_error(error: OSError) -> str:
    """What the system says, of which file, and what helps."""
    said = (
        f"{error.filename}: {error.strerror}"
        if error.filename and error.strerror
        else error.strerror or str(error)
    )
    if error.errno in EXHAUSTED:
        return f"{said}; allow more with ulimit -n 1024, {RESUMES}"
    if error.errno in FULL:
        return f"{said}; make room on the disk, {RESUMES}"
    if error.errno in FORBIDDEN:
        return f"{said}; change the rights of the file or of its folder, {RESUMES}"
    if error.errno == errno.EROFS:
        return f"{said}; name a folder on another disk with --workdir= or --figures="
    return said


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """A question to who wrote a word that is no name, where one of the names is close; else
    nothing.
    """
    near = difflib.get_close_matches(word, [*names], 1)
    return f"; did you mean {near[0]!r}?" if near else ""
