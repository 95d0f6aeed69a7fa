"""The stage `verify`: is every file of a run as it was written? Nothing is changed."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from anisoscope.config.experiment_config import Config
from anisoscope.results import joined_files as tables
from anisoscope.results import step_files
from anisoscope.results.step_files import STREAM, TANGENTS
from anisoscope.sources import provenance
from anisoscope.training import checkpoint, finished, log
from anisoscope.utils import checksums, files, folder
from anisoscope.utils.checksums import CHECKPOINTS, NAME
from anisoscope.utils.errors import EXHAUSTED, RunError, UserError
from anisoscope.utils.settings import to_dict


def verify(title: str, folders: dict[str, pathlib.Path], configs: dict[str, Config]) -> None:
    """Say a line for each damage in these folders, {name: folder}; RunError where there is one."""
    damages = 0
    for name, path in folders.items():
        with folder.locked(path, writes=False):
            found = [*examine(path, configs.get(name))]
            for what, why in found:
                print(f"{name}: {path / what} {why}; {checksums.advice(what, why)}")
            if not found:
                print(f"{name}: whole: {len(checksums.read(path)):,} files, as they were written")
        damages += len(found)
    if damages:
        raise RunError(f"{title}: {damages} damaged, missing or not recorded, as said above")


def examine(run: pathlib.Path, config: Config | None) -> Iterator[tuple[str, str]]:
    """Find what is wrong in a folder: (what, why), each file or checkpoint once."""
    seen = set()
    found = sorted(
        (*of_record(run), *of_content(run, config)), key=lambda one: one[1] == checksums.UNKNOWN
    )
    for what, why in found:
        if (unit := checksums.unit(what)) not in seen:
            seen.add(unit)
            inside = unit != what and why != checksums.UNKNOWN
            why = f"is damaged: {what} {why}" if inside else why
            yield unit, why if os.path.lexists(run / unit) else "is missing"


def of_record(run: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Compare every file with its checksum; one that has none is not known to be whole."""
    with problems(NAME) as found:
        known = checksums.read(run)
    yield from found
    if found or not (run / NAME).exists():
        yield NAME, "is missing"
        return
    for name, digest in known.items():
        if why := checksums.problem(run / name, digest):
            yield name, why
    for name in sorted({*checksums.listed(run)} - {*known}):
        yield name, checksums.UNKNOWN


def of_content(run: pathlib.Path, config: Config | None) -> Iterator[tuple[str, str]]:
    """Check what each file says itself: leaves of checkpoints, steps and runs of tables, order of
    the log.
    """
    if config is not None:
        with problems("config.json") as found:
            folder.check_same(run / "config.json", to_dict(config))
        yield from found
    for place in sorted(path for path in run.glob(f"**/{CHECKPOINTS}") if own(run, path)):
        with contextlib.closing(checkpoint.Checkpoints(place, kept=[], reading=True)) as store:
            for step in store.steps():
                with problems((place / str(step)).relative_to(run).as_posix()) as found:
                    store.check(step)
                yield from found
    settings = provenance.settings_of(config) if config else None
    for path in sorted(path for path in run.glob("**/*.nc") if own(run, path)):
        with problems(path.relative_to(run).as_posix()) as found:
            check_table(run, path, settings)
        yield from found
    for name, check in {
        log.NAME: lambda: log.check_order(log.read_log(run), run / log.NAME),
        finished.NAME: lambda: check_score(run, config),
        "environment.json": lambda: files.read_json(run / "environment.json", ""),
    }.items():
        if (run / name).exists():
            with problems(name) as found:
                check()
            yield from found


def own(run: pathlib.Path, path: pathlib.Path) -> bool:
    """Whether a path is of this run, and not of one inside it, drawn or moved aside."""
    inner = path.relative_to(run).parts
    nested = any(
        {".lock", NAME} & {*os.listdir(parent)} for parent in path.parents if run in parent.parents
    )
    return not nested and inner[0] != "figures" and not inner[0].startswith("damaged")


@contextlib.contextmanager
def problems(what: str) -> Iterator[list[tuple[str, str]]]:
    """Collect the error of a check in place of raising it."""
    found: list[tuple[str, str]] = []
    try:
        yield found
    except (RunError, UserError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        found.append((what, f"is damaged or not its own ({error})"))


def check_table(run: pathlib.Path, path: pathlib.Path, settings: dict | None) -> None:
    place = path.relative_to(run).parts[:-1]
    if place[-1:] in (("measurements",), (TANGENTS,)) and path.stem.isdecimal():
        of = (
            place[1]
            if place[0] == "hook_points"
            else {"measurements": STREAM}.get(place[-1], TANGENTS)
        )
        step_files.read_step(path, of, settings)
    else:
        tables.read_table(path)


def check_score(run: pathlib.Path, config: Config | None) -> None:
    score = finished.read_score(run)
    if config and score.get("step") != config.train.steps:
        raise RunError(
            f"it is of step {score.get('step')}, and the run ends at {config.train.steps}"
        )
