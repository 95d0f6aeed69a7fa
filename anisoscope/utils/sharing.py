"""Share the steps of a folder between processes that measure it with the same settings.

The first process prepares the folder, each claims steps that no other has claimed, and the last
holds the folder alone to join the tables.
"""

import contextlib
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

from anisoscope.utils import checksums, files
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.folder import SETTINGS_GONE, busy, locked_folder, unwritable
from anisoscope.utils.settings import flat, format_differences, to_dict

PATIENCE = 30.0  # seconds for another process to begin or finish its work in the folder
COMPARED = ("measure.", "pretrained.revisions")  # settings that all processes have in common


class Share:
    """The share of a process that works in its folder alone: every step is its own."""

    others: frozenset[int] = frozenset()

    def claim(self, step: int) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)

    def end(self) -> contextlib.AbstractContextManager[bool]:
        return contextlib.nullcontext(True)


ALONE = Share()


class JointShare(Share):
    """The share of a process in a folder that others measure too; `held` makes one."""

    def __init__(self, folder: pathlib.Path, file: Any):
        self.folder, self.file = folder, file  # .lock, open
        self.claims = folder / files.CLAIMS  # a file for each step, locked while it is measured
        self.others: set[int] = set()  # steps that other processes have claimed
        self.ended = False

    def lock(self, kind: str, wait: bool = False) -> bool:
        """Change the lock on the folder; return whether that was possible."""
        import fcntl  # not on every system

        try:
            fcntl.flock(self.file, getattr(fcntl, kind) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    @contextlib.contextmanager
    def claim(self, step: int) -> Iterator[bool]:
        """Claim a step; False where another process measures or has measured it.

        The claim of a process that ended before the step was done is free again.
        """
        path, mine = self.claims / str(step), False
        path.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(BlockingIOError):
                stack.enter_context(files.locked_file(path))
                mine = path.stat().st_size == 0
            if not mine:
                self.others.add(step)
            yield mine
            if mine:
                path.write_text("done\n")

    @contextlib.contextmanager
    def end(self) -> Iterator[bool]:
        """End the share; True if no other process has one, and this one holds the folder alone."""
        self.ended = True
        self.lock("LOCK_UN")  # two processes that end at once would else find each other
        alone = self.lock("LOCK_EX")
        with checksums.recorded_after(self.folder) if alone else contextlib.nullcontext():
            yield alone
        if alone:
            shutil.rmtree(self.claims, ignore_errors=True)
            self.lock("LOCK_UN")


@contextlib.contextmanager
def held(folder: pathlib.Path, config: Any, shared: bool) -> Iterator[Share]:
    """Hold a folder, alone or together with other processes that measure it; raise UserError if busy."""
    if not shared:
        with locked_folder(folder):
            yield ALONE
        return
    try:
        file = open(folder / ".lock", "a+")  # noqa: SIM115 (the next line closes it)
    except OSError as error:
        raise unwritable(folder, error) from error
    with file:
        share = JointShare(folder, file)
        _begin(share, to_dict(config))
        try:
            yield share
        except Exception:  # a stop or a user error: the written files are complete
            if not share.ended:
                with contextlib.suppress(OSError, RunError), share.end():
                    pass
            raise


def _begin(share: JointShare, settings: dict[str, Any]) -> None:
    """Take the lock, prepare the folder if this process is the first, and compare settings."""
    until, path = time.monotonic() + PATIENCE, share.claims / "settings.json"
    try:
        while not (first := share.lock("LOCK_EX")) and not share.lock("LOCK_SH"):
            if time.monotonic() > until:
                raise busy(share.folder)
            time.sleep(0.1)
    except OSError as error:
        raise unwritable(share.folder, error) from error
    if first:
        files.remove_temporary(share.folder)
        checksums.begin(share.folder)
        share.claims.mkdir()
        write_json(path, settings)
        share.lock("LOCK_SH", wait=True)
    others, now = flat(read_json(path, SETTINGS_GONE)), flat(settings)
    names = [name for name in others.keys() | now.keys() if name.startswith(COMPARED)]
    if different := format_differences(others, now, names):
        what = f"another process measures {share.folder} with other settings: {different}"
        raise UserError(f"{what}; wait for it")
