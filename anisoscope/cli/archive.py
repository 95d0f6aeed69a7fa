"""The stage `verify`: check every file of a run against its record, and change nothing."""

import errno
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from anisoscope.config.experiment_config import Config
from anisoscope.results import joined_files, step_files
from anisoscope.results.step_files import STREAM, TANGENTS
from anisoscope.training import checkpoint, log
from anisoscope.utils import checksums, files, folder
from anisoscope.utils.checksums import NAME
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.settings import to_dict

Damage = tuple[str, str]  # the path below the folder, and what is wrong


def verify_folders(title: str, folders: list[tuple[str, pathlib.Path, Config | None]]) -> None:
    """Print a line for each damaged file in the folders: their names, paths and configs.

    Raises:
        RunError: A file is damaged, missing or not recorded.
    """
    count = 0
    for name, path, config in folders:
        with folder.locked_folder(path, writes=False):
            damages = [*find_damages(path, config)]
            for what, why in damages:
                print(f"{name}: {path / what} {why}; {checksums.advice(what, why)}")
            if not damages:
                print(f"{name}: {len(checksums.read_checksums(path)):,} files, all unchanged")
        count += len(damages)
    if count:
        files = f"{count} file{'s' * (count > 1)}"
        raise RunError(f"{title}: {files} damaged, missing or not recorded, listed above")


def find_damages(run: pathlib.Path, config: Config | None) -> Iterator[Damage]:
    """Find damaged files and checkpoints, each listed once; unrecorded files come last."""
    reported = set()
    damages = (*compare_checksums(run), *check_contents(run, config))
    for what, why in sorted(damages, key=lambda damage: damage[1] == checksums.UNKNOWN):
        if (unit := checksums.restored_unit(what)) not in reported:
            reported.add(unit)
            if unit != what and why != checksums.UNKNOWN:
                why = f"is damaged: {what} {why}"
            yield unit, why if os.path.lexists(run / unit) else "is missing"


def compare_checksums(run: pathlib.Path) -> Iterator[Damage]:
    """Compare every file with its checksum, and report files without a checksum."""
    if damage := attempt(NAME, checksums.read_checksums, run):
        yield from damage
        return
    if not (run / NAME).exists():
        yield NAME, "is missing"
        return
    known = checksums.read_checksums(run)
    for name, digest in known.items():
        if why := checksums.problem(run / name, digest):
            yield name, why
    for name in sorted({*checksums.listed(run)} - {*known}):
        yield name, checksums.UNKNOWN


def check_contents(run: pathlib.Path, config: Config | None) -> Iterator[Damage]:
    """Check what files contain: leaves of checkpoints, steps of tables, order of the log."""
    settings = folder.run_settings(config) if config else None
    checks: dict[str, Callable] = {
        log.NAME: lambda path: log.check_order(log.read_log(run), path),
        log.SCORE: lambda path: check_score(run, config),
        "environment.json": lambda path: files.read_json(path, ""),
    }
    if config is not None:
        yield from attempt(
            "config.json", folder.check_same_settings, run / "config.json", to_dict(config)
        )
    for name, check in checks.items():
        if (run / name).exists():
            yield from attempt(name, check, run / name)
    names = sorted(checksums.listed(run))
    for name in (name for name in names if name.endswith(".nc")):
        yield from attempt(name, check_stored_table, run, run / name, settings)
    for name in sorted({checksums.restored_unit(name) for name in names} - {*names}):
        place, step = (run / name).parent, pathlib.Path(name).name
        if step.isdecimal():
            store = checkpoint.CheckpointReader(place, run=None)
            yield from attempt(name, store.check, int(step))


def attempt(what: str, check: Callable, *args: Any) -> list[Damage]:
    """Run a check and return its error as a damage."""
    try:
        check(*args)
    except (RunError, UserError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # too many open files are not damage
        return [(what, f"is damaged or belongs to another run ({error})")]
    return []


def check_stored_table(run: pathlib.Path, path: pathlib.Path, settings: dict | None) -> None:
    """Read a table; raise an error if its step or cloud differs from the path."""
    place = path.relative_to(run).parts[:-1]
    if place[-1:] not in (("measurements",), (TANGENTS,)) or not path.stem.isdecimal():
        joined_files.read_table(path)
        return
    cloud = STREAM if place[-1] == "measurements" else TANGENTS
    step_files.read_step(path, place[1] if place[0] == "hook_points" else cloud, settings)


def check_score(run: pathlib.Path, config: Config | None) -> None:
    """Raise RunError if the score is not from the last step."""
    step = log.read_score(run).get("step")
    if config and step != config.train.steps:
        raise RunError(f"its step is {step}, but the run ends at step {config.train.steps}")
