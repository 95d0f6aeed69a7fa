"""The stage `figures`: draw the tables of runs on disk, and print bits per character."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import xarray as xr

from anisoscope.analysis import on_disk
from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import OBJECTIVE_LABELS
from anisoscope.plot import draw, report, run_tables
from anisoscope.plot.experiment_figures import Compared
from anisoscope.plot.run_tables import Run, average_seeds
from anisoscope.results import joined_files
from anisoscope.training import log
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import is_temporary, write_file
from anisoscope.utils.folder import missing_file

FIRST_FIGURES = {  # the page begins with them, and the command names them: what to look for
    "geometry_over_training": "do anisotropy and rank turn round while the model learns?",
    "anisotropy_profile": "has anisotropy a bell over depth, or is it flat?",
    "dimension_profile": "how far below a Gaussian cloud (dashed) lies the dimension?",
}


def find_runs(
    configs: dict[str, Config], root: pathlib.Path, title: str, compare: list[str]
) -> dict[str, pathlib.Path]:
    """Find the runs to draw in the same figures, {label: folder}; those of `compare` must exist."""
    folders = own = {name or title: root / name for name in configs}
    for path in map(pathlib.Path, compare):
        name = path.resolve().name  # a path would leave a figure no room
        # seeds of a condition are drawn under its name
        shared = name in folders or any(run.startswith(name) for run in own)
        label = str(path) if shared else name
        if label in folders or path.resolve() in {each.resolve() for each in folders.values()}:
            why = "this run or its name is already in the figures; omit it"
            raise UserError(f"--compare={path}: {why}")
        folders = folders | {label: path}
        load_run(path)
    return folders


def figures_folder(figures: str | None, root: pathlib.Path) -> pathlib.Path:
    """Return the folder for figures; raise UserError if it holds other files."""
    own = root / "figures"
    to = pathlib.Path(figures or own)
    if to.resolve() == root.resolve() or (to / "config.json").exists():
        raise UserError(f"--figures={to} is the folder of a run; name another folder")
    if to.exists() and not to.is_dir():
        raise UserError(f"--figures={to} is a file; name a folder")
    foreign = to.is_dir() and any(to.iterdir()) and not (to / draw.FOLDER_MARK).exists()
    if foreign and to.resolve() != own.resolve():
        why = "holds files that are not figures of this command; name another folder"
        raise UserError(f"--figures={to} {why}")
    return to


def draw_figures(
    folders: dict[str, pathlib.Path], to: pathlib.Path, root: pathlib.Path, over: str, title: str
) -> None:
    """Draw the runs {label: folder} and the tables of the experiment in `root`, and write a page.

    Seeds of the experiment's own runs are averaged. `over` is the x axis of training curves.
    """
    if not processes.is_first():
        return
    runs = {label: load_run(path) for label, path in folders.items()}
    place = root.resolve()
    own = {x: path for x, path in folders.items() if path.resolve().is_relative_to(place)}
    averaged = average_seeds({label: runs[label] for label in own})
    plotted = averaged | {label: run for label, run in runs.items() if label not in own}
    paths, contrasts = draw.draw_runs(plotted, to, over), on_disk.read_primary(root)
    if why := on_disk.why_outdated(root, on_disk.RUNS_CSV, own):
        print(f"contrasts are not drawn: {why}")
    if not why and (root / on_disk.RUNS_CSV).exists():
        matched = on_disk.read_contrasts(root, on_disk.LOSS_MATCHED_CSV)
        compared = Compared(averaged, on_disk.read_runs(root)[1], matched, contrasts)
        paths += draw.save_figures(draw.EXPERIMENT, compared, to)
    else:
        draw.remove_figures(draw.EXPERIMENT, to)
    bits, first = format_bits(runs, folders), first_figures(paths)
    page = write_page(plotted, to, root, title, bits, first)
    hints = (f"  {path.name}: {FIRST_FIGURES[path.stem]}" for path in first)
    print(*bits, format_figures(paths, to), *hints, f"page:    {page}", sep="\n")


def format_bits(runs: dict[str, Run], folders: dict[str, pathlib.Path]) -> list[str]:
    """Format a line with the test bits of each objective's runs: bits of two are not comparable."""
    lines = []
    for kind, label in OBJECTIVE_LABELS.items():
        members = [run for run in runs if runs[run].results.attrs.get("objective") == kind]
        scores = {run: on_disk.bits(folders[run]).get("test_bits", math.nan) for run in members}
        bits = ", ".join(f"{run} {x:.2f}" for run, x in scores.items() if math.isfinite(x))
        if bits:
            what = f"bits per character on the test split, predicting {label}"
            lines.append(f"{what}: {bits}")
    return lines


def write_page(
    runs: dict[str, Run],
    to: pathlib.Path,
    root: pathlib.Path,
    title: str,
    bits: Sequence[str] = (),
    pictures: Sequence[pathlib.Path] = (),
) -> pathlib.Path:
    """Write the page next to the run, or into the folder of figures if that is elsewhere.

    The page of a single pretrained model has its name as title.
    """
    place = root if to.resolve() == (root / "figures").resolve() else to
    shared, own = run_tables.provenance(runs)
    for left in filter(is_temporary, os.listdir(place)):  # of a process that was killed
        if left.startswith(f".{report.PAGE_NAME}."):
            (place / left).unlink(missing_ok=True)
    sentences = [f"{', '.join(runs)}: {shared}", *own, *bits]
    models = {report.model_name(run.results) for run in runs.values()}
    title = (len(runs) == 1 and models.pop()) or title
    write_file(place / report.PAGE_NAME, report.page(runs, title, sentences, pictures))
    return place / report.PAGE_NAME


def first_figures(paths: list[pathlib.Path]) -> list[pathlib.Path]:
    """Select the pictures to look at first, in the order of FIRST_FIGURES."""
    pictures = {path.stem: path for path in paths if path.suffix == ".png"}
    return [pictures[name] for name in FIRST_FIGURES if name in pictures]


def format_figures(paths: list[pathlib.Path], to: pathlib.Path) -> str:
    """Format a line with the number of figures and their folder."""
    count = sum(path.suffix == ".png" for path in paths)
    return f"figures: {to} ({count}, each as .png and .pdf with its caption in .txt)"


def load_run(path: pathlib.Path) -> Run:
    """Read the tables and the log of a run; raise UserError if there is nothing to draw."""
    if inner := sorted(child.parent.name for child in path.glob("*/environment.json")):
        what = f"{path} holds the runs {', '.join(inner)}"
        raise UserError(f"{what}; name a single run, such as {path / inner[0]}")
    if not (path / "results.nc").exists():
        raise missing_file(path, "results.nc", "train,measure")
    results, tangents = joined_files.read_table(path / "results.nc"), path / "tangents.nc"
    hook_points = {}
    for place in sorted(path.glob("hook_points/*/results.nc")):
        table = joined_files.read_table(place)
        if _sample(table) == _sample(results):
            hook_points[place.parent.name] = table
        else:
            why = "is of another sample or last step than results.nc"
            print(f"not drawn: {place} {why}; run --stages=measure with its hook points again")
    return Run(
        results,
        log.read_log(path),
        joined_files.read_table(tangents) if tangents.exists() else None,
        hook_points,
    )


def _sample(table: xr.Dataset) -> list[Any]:
    names = ("points", "batches", "folds")
    return [int(table.step[-1]), *(table.attrs.get(name) for name in names)]
