"""Errors for the user, each with a one-line message: what is wrong, where, what to do."""

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator

RESUMES = "and the same command resumes there"
ADVICE = {
    (errno.EMFILE, errno.ENFILE): f"raise the limit with ulimit -n 1024, {RESUMES}",
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG): f"free space on the disk, {RESUMES}",
    (errno.EACCES, errno.EPERM): f"change the permissions of the file or its folder, {RESUMES}",
    (errno.ELOOP,): "name another path: this one leads through a link to itself",
    (errno.EROFS,): "name a folder on another disk with --workdir= or --figures=",
}


class UserError(Exception):
    """Bad input that the user can correct before anything runs; exit code 2."""


class SettingError(UserError):
    """A bad setting. `names` are the settings in the message, as the command calls them."""

    def __init__(self, message: str, *names: str):
        super().__init__(message)
        self.names = names


class Stopped(Exception):  # noqa: N818 a request, no error
    """A stop that the user requested, after the current work was saved; exit code 0."""


class RunError(Exception):
    """A run that cannot continue; exit code 1."""


class LostProcessError(Exception):
    """The end of another process; exit code 1 at once, since JAX would wait for it.

    It is not a RunError, which marks a damaged checkpoint.
    """


@contextlib.contextmanager
def as_value_error() -> Iterator[None]:
    """Raise a UserError or RunError as the ValueError that callers of the library expect."""
    try:
        yield
    except (UserError, RunError) as error:
        raise ValueError(str(error)) from error


def did_you_mean(word: str, choices: Iterable[object], mark: str = "") -> str:
    """Return "did you mean NAME? " where a choice is like the word, else nothing; `mark` precedes it."""
    near = difflib.get_close_matches(word, map(str, choices), 1)
    return f"did you mean {mark}{near[0]}? " if near else ""


def format_os_error(error: OSError) -> str:
    """Format the system's message with the file's name and advice."""
    what = error.strerror or str(error)
    if error.filename and error.strerror:
        what = f"{error.filename}: {what}"
    advice = "".join(f"; {advice}" for codes, advice in ADVICE.items() if error.errno in codes)
    return f"{what}{advice}"
