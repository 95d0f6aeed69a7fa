"""The stage `figures`: what is drawn, from the tables of runs on disk alone, and the findings in
words.
"""

import pathlib

from anisoscope.analysis import findings, on_disk, primary
from anisoscope.config.experiment_config import Config
from anisoscope.plot import draw, render, report
from anisoscope.plot.experiment_figures import Compared
from anisoscope.plot.run_tables import Run
from anisoscope.plot.seed_lines import over_seeds
from anisoscope.results import joined_files
from anisoscope.training import finished, log
from anisoscope.utils import checksums, processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import write
from anisoscope.utils.folder import not_there


def named(
    configs: dict[str, Config], root: pathlib.Path, title: str, compare: list[str]
) -> dict[str, pathlib.Path]:
    """Label and folder of all runs that are drawn together; those to compare with must exist
    already.
    """
    shown = {name or title: root / name for name in configs}
    for path in map(pathlib.Path, compare):
        name = path.resolve().name
        label = name if name not in shown else str(path)  # a long path would leave a figure no room
        if label in shown or path.resolve() in {other.resolve() for other in shown.values()}:
            raise UserError(
                f"--compare={path}: this run, or one of this name, is in the figures already"
            )
        shown[label] = path
        load(path)
    return shown


def check_measured(configs: dict[str, Config], root: pathlib.Path) -> None:
    """Refused before a long training, and not after it: figures of what was trained and is not
    measured.
    """
    if not all((root / name / "results.nc").exists() for name in configs):
        raise UserError(
            "--stages=train,figures: figures are drawn from tables, which the stage measure writes; add it"
        )


def folder_of(figures: str | None, root: pathlib.Path) -> pathlib.Path:
    """Where figures go: a folder of their own. UserError where one that is named holds what was not
    drawn here.
    """
    own = root / "figures"
    to = pathlib.Path(figures or own)
    if to.exists() and not to.is_dir():
        raise UserError(f"--figures={to} is no folder; name one that is empty or new")
    if (
        to.resolve() != own.resolve()
        and to.is_dir()
        and any(to.iterdir())
        and not (to / draw.MARK).exists()
    ):
        raise UserError(
            f"--figures={to} is not empty and holds no figures drawn here; name another folder"
        )
    draw.check_folder(to, root)
    return to


def beside(to: pathlib.Path, root: pathlib.Path) -> pathlib.Path:
    """Where the page of these figures lies: in the run's folder, or with figures that are
    elsewhere.
    """
    return root if to.resolve() == (root / "figures").resolve() else to


def draw_figures(
    shown: dict[str, pathlib.Path],
    to: pathlib.Path,
    root: pathlib.Path | None = None,
    over: str = "step",
) -> None:
    """Figures of all that is shown, where seeds of the experiment's own runs are one, and of an
    experiment's tables.
    """
    if not processes.is_first():
        return
    root = root or to.parent
    checksums.refuse_changed(root)
    runs = {name: load(path) for name, path in shown.items()}
    check_axis(runs, over)
    folders = {
        name: path for name, path in shown.items() if path.resolve().is_relative_to(root.resolve())
    }
    own = over_seeds({name: runs[name] for name in folders})
    # a run to compare with may be called as a condition is: then by its path
    called = {
        name: name if name in folders or name not in own else str(path)
        for name, path in shown.items()
    }
    shown, runs = (
        {called[name]: value for name, value in of_each.items()} for of_each in (shown, runs)
    )
    drawn = own | {called[name]: runs[called[name]] for name in called if name not in folders}
    paths, named = draw.draw_runs(drawn, to, over), on_disk.read_primary(root)
    if (root / "runs.csv").exists():
        matched = on_disk.read_loss_matched(root, folders)
        by_level = on_disk.read_by_level(root, folders)
        paths += draw.draw(
            draw.EXPERIMENT, Compared(own, *on_disk.read_runs(root), matched, named, by_level), to
        )
    written = write_page(drawn, beside(to, root))
    bits = {name: on_disk.bits(path) for name, path in shown.items()}
    for line in findings.sentences({name: run.results for name, run in runs.items()}, bits):
        print(line)
    for line in primary.format_lines(named):
        print(line)
    print(format_figures(paths, to))
    print(f"page:    {written}")


def write_page(runs: dict[str, Run], folder: pathlib.Path) -> pathlib.Path:
    path = folder / report.NAME
    write(path, report.page(runs, folder.resolve().name))
    return path


def check_axis(runs: dict[str, Run], over: str) -> None:
    """Raise UserError where curves cannot be drawn over it: old logs have no context gain, nor do
    pretrained models.
    """
    variable = "step" if over == "step" else render.GAIN
    if without := [name for name, run in runs.items() if variable not in run.results]:
        advice = "leave --over out, or draw runs that have it; --stages=measure reads it from a newer log"
        raise UserError(
            f"--over={over}: {', '.join(without)} have no context gain at their checkpoints; {advice}"
        )


def format_figures(paths: list[pathlib.Path], to: pathlib.Path) -> str:
    count = sum(path.suffix == ".png" for path in paths)
    return f"figures: {to} ({count}, each as .png and .pdf with its caption in .txt)"


def load(path: pathlib.Path) -> Run:
    checksums.refuse_changed(path)
    # of tables there is none
    if inner := sorted(child.parent.name for child in path.glob("*/environment.json")):
        raise UserError(
            f"{path} holds the runs {', '.join(inner)}; name one of them: {path / inner[0]}"
        )
    begun = (
        (path / "train.jsonl").exists()
        or finished.is_finished(path)
        or (path / "measurements").exists()
    )
    if not (path / "results.nc").exists():
        raise not_there(path, *(("results.nc", "measure") if begun else ("train.jsonl", "train")))
    results, lines = joined_files.read_table(path / "results.nc"), []
    if (path / "train.jsonl").exists():
        lines = log.read_log(path)
    elif "provenance" not in results.attrs:  # trained here
        # else it is finished, and nothing would write its log again
        if not finished.is_finished(path):
            raise not_there(path, "train.jsonl", "train")
        if processes.is_first():
            print(
                f"{path / 'train.jsonl'} does not exist: figures have no training curve of this run"
            )
    directions = path / "tangents.nc"
    beside = {
        table.parent.name: joined_files.read_table(table)
        for table in sorted(path.glob("hook_points/*/results.nc"))
    }
    return Run(
        results, lines, joined_files.read_table(directions) if directions.exists() else None, beside
    )
