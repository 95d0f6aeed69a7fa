"""Experiments where nothing is trained: untrained blocks, vectors of a file, pretrained models; two
runs compared.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from anisoscope.analysis import correlations, on_disk
from anisoscope.cli import archive, flags
from anisoscope.cli.drawing import beside, draw_figures, folder_of, format_figures, load, write_page
from anisoscope.cli.flags import Request
from anisoscope.cli.stages import keep_compiled, with_tangents
from anisoscope.config import pretrained_models as models
from anisoscope.config.curved_config import CurvedConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.config.pretrained_models import ModelsConfig
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.plot import draw, papers
from anisoscope.results import joined_files
from anisoscope.sources import two_representations, two_runs, vector_run
from anisoscope.sources.untrained import untrained_blocks as untrained
from anisoscope.subspaces.curved import curved_tables as curved
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.folder import not_there
from anisoscope.utils.stop import Stop


def untrained_blocks(config: UntrainedConfig, request: Request) -> None:
    """Measure and draw untrained blocks under bias: one folder, with neither text nor training."""

    def measure() -> None:
        with Stop() as stop:  # a request is heard from before the folder has its first file
            folder.record_environment(request.root, None)
            untrained.run(config, request.root, request.title, stop)

    without_text(config, request, draw.UNTRAINED, measure)


def curved_manifolds(config: CurvedConfig, request: Request) -> None:
    """Measure and draw a probe's gradients on curved manifolds, likewise."""

    def measure() -> None:
        folder.record_environment(request.root, None)
        curved.run(config, request.root, request.title)

    without_text(config, request, draw.CURVED, measure)


def without_text(config: Any, request: Request, figures: dict, measure: Callable[[], None]) -> None:
    """One folder of an experiment that reads no text and trains nothing."""
    root, wanted, to = begun(request)
    keep_compiled()
    if "measure" in wanted:
        folder.claim(root, config, new=True)
        with folder.locked(root):
            measure()
    if "figures" in wanted:
        if not (root / "results.nc").exists():
            raise UserError(f"{root / 'results.nc'} does not exist; run --stages=measure first")
        folder.claim(root, config, new=False)
        print(
            format_figures(draw.draw(figures, joined_files.read_table(root / "results.nc"), to), to)
        )


def vectors_of_file(config: vector_run.VectorsConfig, request: Request) -> None:
    """Measure and draw a file of vectors: one folder."""
    root, wanted, to = begun(request)
    keep_compiled()
    if "measure" in wanted:
        opened = vector_run.open_file(config)
        folder.claim(root, config, new=True)
        with folder.locked(root):
            folder.record_environment(root, None)
            vector_run.run(config, opened, root, request.title)
    if "figures" in wanted:
        folder.claim(root, config, new=False)
        draw_measured(request.title, root, to)


def pretrained_model(config: PretrainedConfig, request: Request) -> None:
    """Measure and draw a pretrained model: one folder, without a log of a training, whose name it
    bears.
    """
    root, wanted, to = begun(request)
    keep_compiled(config.data.cache)
    title = root.name or request.title
    wanted = with_tangents([config], wanted)
    if {"measure", "tangents"} & {*wanted}:
        with needing_torch():  # late: nothing else needs it
            from anisoscope.sources.hf import revision_sweep
            from anisoscope.subspaces.hf import pretrained_tangents as tangents
        if "tangents" in wanted:
            tangents.task_of(config)
        source = revision_sweep.open_revisions(config, root, title)
        # told before the model is measured
        prepared = tangents.prepared(source) if "tangents" in wanted else None
        with Stop() as stop:
            if "measure" in wanted:
                revision_sweep.measure_revisions(source, stop)
                correlate(title, root)
            if prepared:
                tangents.run(prepared, stop)
    if "figures" in wanted:
        draw_measured(title, root, to)


def correlate(name: str, root: pathlib.Path) -> None:
    """Write correlations.csv of a model, whose folder nobody holds any more."""
    with folder.locked(root):
        on_disk.write_run(name, root)


def similarity_of_runs(first: str, second: str, workdir: str | None, figures: str | None) -> None:
    """Compare every layer of one run with every layer of another, and draw it; in a folder of its
    own.
    """
    keep_compiled()
    pairs = two_runs
    if any(map(two_representations.is_pretrained, (first, second))):
        with needing_torch():
            from anisoscope.sources.hf import two_pretrained as pairs
    pair = pairs.opened(first, second)
    root = pathlib.Path(
        workdir or f"runs/similarity_{pair.labels[0]}_{pair.labels[1]}".replace("@", "_")
    )
    to = folder_of(figures, root)
    folder.claim(root, two_representations.SimilarityConfig(runs=(first, second)), new=True)
    with folder.locked(root):
        folder.record_environment(root, pair.corpus.record())
        table = two_representations.table(pair)
        two_representations.write(table, pair.labels, root)
    print(format_figures(draw.draw(draw.SIMILARITY, table, to), to))


def pretrained_models(config: ModelsConfig, request: Request) -> None:
    """Measure and draw a list of them: a folder for each, and the figures of a paper of all that
    are measured.
    """
    root, wanted, to = begun(request)
    keep_compiled(config.data.cache)
    if "measure" in wanted:
        with needing_torch():
            from anisoscope.sources.hf import model_list
        with Stop() as stop:
            model_list.measure_models(config, root, stop, correlate)
    if "figures" in wanted:
        path = root / models.TABLE
        if not path.exists():
            raise not_there(root, models.TABLE, "measure")
        known = read_json(path, "run --stages=measure again")
        shown = {label: root / label for label in models.called(config.models) if label in known}
        if not shown:
            raise UserError(
                f"{path} has none of {', '.join(models.called(config.models))}; run --stages=measure first"
            )
        draw_models(config.paper, {label: known[label] for label in shown}, shown, to, root)


def draw_models(
    paper: str,
    about: dict[str, dict],
    shown: dict[str, pathlib.Path],
    to: pathlib.Path,
    root: pathlib.Path,
) -> None:
    runs = {label: load(path) for label, path in shown.items()}
    drawn = {
        label: papers.Model(run, about[label]["modality"], about[label]["kind"])
        for label, run in runs.items()
    }
    paths = draw.draw(draw.MODELS[paper], drawn, to)
    if paper == "inherent":
        modality = {label: one["modality"] for label, one in about.items()}
        correlated = correlations.by_modality(
            {label: run.results for label, run in runs.items()}, modality
        )
        joined_files.write_csv(correlated, to / "correlations_by_modality.csv")
    print(format_figures(paths, to))
    print(f"page:    {write_page(runs, beside(to, root))}")


def verify(config: Any, request: Request) -> None:
    """Is the folder whole, and of a list of models each of theirs?"""
    root, title = request.root, request.title
    folder.check_there(root, config, False)
    inner = sorted(
        path.parent for path in root.glob("*/config.json") if path.parent.name != "export"
    )
    archive.verify(title, {title: root} | {path.name: path for path in inner}, {})


def dry_run(config: Any, request: Request) -> None:
    """Print the folder and the settings."""
    print(f"folder: {request.root}", *flags.format_settings(config), sep="\n")


def begun(request: Request) -> tuple[pathlib.Path, list[str], pathlib.Path]:
    """The folder to work in, the stages that are wanted, and where figures go."""
    return request.root, request.given.stages, folder_of(request.given.figures, request.root)


@contextlib.contextmanager
def needing_torch() -> Iterator[None]:
    """One line where it is not installed, as in the environment of all but pretrained models."""
    try:
        yield
    except ImportError as error:
        advice = 'pip install "anisoscope[pretrained]" installs what is needed; in a checkout, make .venv-pretrained'
        raise UserError(f"a pretrained model cannot be read here ({error}): {advice}") from error


def draw_measured(title: str, root: pathlib.Path, to: pathlib.Path) -> None:
    """Of vectors and of pretrained models, whose folder has tables alone."""
    if not (root / "results.nc").exists():
        raise not_there(root, "results.nc", "measure")
    draw_figures({title: root}, to, root)
