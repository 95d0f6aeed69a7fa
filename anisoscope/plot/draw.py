"""Every figure: its file's name and what draws it. Drawn are those that the tables allow."""

import io
import pathlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis import correlations
from anisoscope.plot import (
    attention_sinks,
    curved_figures,
    experiment_figures,
    frame_statistics,
    papers,
    query_key_projection,
    similarity_figures,
    style,
    tangent_figures,
    training_curve,
    untrained_figures,
    verdict_figures,
)
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import Run
from anisoscope.plot.specs import OVER_TRAINING, SPECS, WATCHED
from anisoscope.utils import files
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

MAKER = "anisoscope"  # in the metadata of every picture
MARK = "drawn.txt"  # of a folder in which files may be written again and removed
OF_A_RUN = ("config.json", "results.nc")  # in a folder whose files are no figures
T = TypeVar("T")  # what a figure is drawn from

RUNS: dict[str, Callable[[dict[str, Run]], Figure | None]] = {
    **{name: partial(render, spec) for name, spec in SPECS.items()},
    "layer_similarity": similarity_figures.of_layers,
    "query_key_projection": query_key_projection.build,
    "sharpness_against_alignment": frame_statistics.sharpness_against_alignment,
    "cosine_against_drift": frame_statistics.cosine_against_drift,
    "training_curve": training_curve.build,
    **{name: partial(training_curve.watched, spec) for name, spec in WATCHED.items()},
}
EXPERIMENT: dict[str, Callable[[experiment_figures.Compared], Figure | None]] = {
    "runs_compared": experiment_figures.runs_compared,
    "contrasts": experiment_figures.contrasts,
    "contrasts_loss_matched": experiment_figures.contrasts_loss_matched,
    "contrasts_by_level": experiment_figures.contrasts_by_level,
    "primary_contrasts": verdict_figures.build,
    "attention_sinks": attention_sinks.build,
}
UNTRAINED: dict[str, Callable[[xr.Dataset], Figure | None]] = {
    "untrained_cosine": untrained_figures.cosine,
    "untrained_norm": untrained_figures.norm,
    "untrained_sharpness": untrained_figures.sharpness,
    "untrained_stack": untrained_figures.stack,
    "untrained_targets": untrained_figures.targets,
}
SIMILARITY: dict[str, Callable[[xr.Dataset], Figure | None]] = {
    "similarity_of_models": similarity_figures.of_models
}
MODELS = papers.FIGURES
CURVED: dict[str, Callable[[xr.Dataset], Figure | None]] = {
    "curved_manifolds": curved_figures.build
}


def draw(
    figures: dict[str, Callable[[T], Figure | None]], of: T, folder: pathlib.Path
) -> list[pathlib.Path]:
    """PNG, PDF and caption of each figure, under `folder`; what no longer applies is removed. The
    paths written.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # there is no lock: whoever draws into it at the same time too may have to draw again
    files.remove_begun(folder)
    if not (folder / MARK).exists():
        files.write(
            folder / MARK,
            "Figures drawn by main.py: drawn again, and removed where they no longer apply.\n",
        )
    shown = bar(figures.items(), "figures", "figure", leave=False)
    check_pictures(folder, figures)
    with style.context(), shown:
        return [path for name, build in shown for path in save(build(of), folder, name)]


def check_folder(folder: pathlib.Path, root: pathlib.Path | None = None) -> None:
    """Raise UserError where files would be lost: in a link, or in the folder of a run or of the one
    that begins.
    """
    if folder.is_symlink():
        raise UserError(
            f"{folder} is a link; name the folder of the figures itself with --figures=DIR"
        )
    begins = root is not None and folder.resolve() == root.resolve()
    if begins or any((folder / name).exists() for name in OF_A_RUN):
        raise UserError(
            f"--figures={folder} is the folder of a run, whose tables are no figures; name another folder"
        )


def check_pictures(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Raise UserError where a file of a figure's name was not drawn here."""
    for path in (folder / f"{name}.{kind}" for name in names for kind in ("png", "pdf", "txt")):
        # of a caption, its picture
        known = path.with_suffix(".png") if path.suffix == ".txt" else path
        if path.exists() and not (known.exists() and MAKER.encode() in known.read_bytes()):
            raise UserError(
                f"{path} was not drawn here and would be lost; move it, or draw elsewhere with --figures=DIR"
            )


def draw_runs(runs: dict[str, Run], folder: pathlib.Path, over: str = "step") -> list[pathlib.Path]:
    """Compare the runs in each figure, curves `over` steps or gain; of several runs
    correlations.csv too, pooled.
    """
    several = any(run.results.sizes["step"] > 1 for run in runs.values())
    curves = {
        name: partial(render, spec, over=over) for name, spec in SPECS.items() if spec.x == "step"
    }
    figures = {
        name: curves.get(name, build) for name, build in (RUNS | tangent_figures.FIGURES).items()
    }
    if not several:  # what would be over training is removed
        figures |= dict.fromkeys(OVER_TRAINING & figures.keys(), lambda runs: None)
    paths, pooled = draw(figures, runs, folder), folder / "correlations.csv"
    if len(runs) == 1:
        files.remove(pooled)
        return paths
    correlations.write({label: run.results for label, run in runs.items()}, pooled)
    return [*paths, pooled]


def save(figure: Figure | None, folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Write name.png, .pdf and the caption .txt, without a date; remove them where there is nothing
    to draw.
    """
    paths = [folder / f"{name}.{kind}" for kind in ("png", "pdf", "txt")]
    if figure is None:
        for path in reversed(paths):
            files.remove(path)
        return []
    for path, metadata in zip(
        paths, ({"Software": MAKER}, {"Creator": MAKER, "CreationDate": None}), strict=False
    ):
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], metadata=metadata)
        # laid out once, by the first: both files have the same geometry
        figure.set_layout_engine("none")
        files.write(path, content.getvalue())
    files.write(paths[-1], figure.get_label() + "\n")
    return paths
