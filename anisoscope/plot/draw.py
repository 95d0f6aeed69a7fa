"""Every figure by file name; figures whose tables exist are drawn."""

import io
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from anisoscope.analysis import correlations
from anisoscope.plot import experiment_figures, run_figures, scatter_figures, style, theory_figures
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import Run, display_names
from anisoscope.plot.specs import GAIN_AXIS, PROFILE_BY_KIND, SPECS, WATCHED
from anisoscope.utils import files
from anisoscope.utils.progress import progress_bar

MAKER = "anisoscope"  # in the metadata of every picture
FOLDER_MARK = "drawn.txt"  # marks a folder in which files may be overwritten and removed
MARK_TEXT = "Figures drawn by main.py: drawn again, and removed where they no longer apply.\n"
FILE_KINDS = ("png", "pdf", "txt")
Runs = dict[str, Run]
Figures = dict[str, Callable[[Any], Figure | None]]  # by file name, from runs or a table

RUN_FIGURES: Figures = {
    **{name: partial(render, spec) for name, spec in SPECS.items()},
    "layer_similarity": run_figures.layer_similarity,
    "cosine_against_drift": scatter_figures.cosine_against_drift,
    "training_curve": run_figures.training_curve,
    **{name: partial(run_figures.draw_watched, spec) for name, spec in WATCHED.items()},
    "tangent_energy": run_figures.tangent_energy,
}
EXPERIMENT: Figures = {  # figures of a Compared
    "contrasts": experiment_figures.draw_contrasts,
    "contrasts_loss_matched": experiment_figures.contrasts_loss_matched,
    "primary_contrasts": experiment_figures.primary_contrasts,
}
UNTRAINED_FIGURES: Figures = {
    "untrained_cosine": partial(theory_figures.in_and_out, "cosine"),
    "untrained_norm": partial(theory_figures.in_and_out, "norm"),
    "untrained_sharpness": theory_figures.draw_sharpness,
}
SIMILARITY_FIGURES: Figures = {"similarity_of_models": run_figures.model_similarity}
CURVED: Figures = {"curved_manifolds": theory_figures.curved_manifolds}


MODELS: dict[str, Figures] = {  # figures of each paper
    "shape_of_learning": {
        "anisotropy_over_depth": partial(render, PROFILE_BY_KIND),
        **{
            name: RUN_FIGURES[name]
            for name in ("dimension_over_training", "anisotropy_by_checkpoint")
        },
    },
    "inherent": {"cosine_and_drift": scatter_figures.cosine_and_drift},
}


def save_figures(figures: Figures, tables: Any, folder: pathlib.Path) -> list[pathlib.Path]:
    """Write PNG, PDF and caption of each figure, and remove outdated ones; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files.remove_temporary(folder)  # two processes that draw at once may have to draw again
    if not (folder / FOLDER_MARK).exists():
        files.write_file(folder / FOLDER_MARK, MARK_TEXT)
    shown = progress_bar(figures.items(), "figures", "figure", leave=False)
    with style.context(), shown:
        return [path for name, build in shown for path in save_figure(build(tables), folder, name)]


def draw_runs(runs: Runs, folder: pathlib.Path, over: str = "step") -> list[pathlib.Path]:
    """Draw the runs in each figure, with `over` as x axis of curves over training.

    For several runs also write correlations.csv, pooled. Return the paths written.
    """
    figures = dict(RUN_FIGURES)
    if over != "step":
        training = {
            name: replace(spec, x=GAIN_AXIS) for name, spec in SPECS.items() if spec.x == "step"
        }
        figures |= {name: partial(render, spec) for name, spec in training.items()}
    paths = save_figures(figures, display_names(runs), folder)
    pooled = folder / "correlations.csv"
    if len(runs) == 1:
        pooled.unlink(missing_ok=True)
        return paths
    correlations.write_correlations({label: run.results for label, run in runs.items()}, pooled)
    return [*paths, pooled]


def save_figure(figure: Figure | None, folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Write name.png, .pdf and the caption .txt, without a date; remove them without a figure."""
    if figure is None:
        return remove_figures([name], folder)
    paths = [folder / f"{name}.{kind}" for kind in FILE_KINDS]
    metadata = {"Software": MAKER}, {"Creator": MAKER, "CreationDate": None}
    for path, about in zip(paths, metadata, strict=False):
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], metadata=about)
        figure.set_layout_engine("none")  # both files have the geometry of the first
        files.write_file(path, content.getvalue())
    files.write_file(paths[-1], figure.get_label() + "\n")
    return paths


def remove_figures(names: Iterable[str], folder: pathlib.Path) -> list[pathlib.Path]:
    """Remove the files of figures that no longer apply; return no path."""
    for name in names:
        for kind in reversed(FILE_KINDS):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
    return []
