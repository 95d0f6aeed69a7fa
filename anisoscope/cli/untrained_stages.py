"""The stages of experiments without training.

They measure untrained blocks, curved manifolds and pretrained models, or compare two runs.
"""

import functools
import pathlib
from dataclasses import replace
from typing import Any

from anisoscope.analysis import correlations, on_disk
from anisoscope.cli import drawing, flags
from anisoscope.cli.flags import Request
from anisoscope.cli.training_stages import keep_compiled, with_tangents
from anisoscope.config import pretrained_config
from anisoscope.config.pretrained_config import ModelsConfig, PretrainedConfig
from anisoscope.config.untrained_config import CurvedConfig, UntrainedConfig
from anisoscope.plot import draw
from anisoscope.results import joined_files
from anisoscope.sources import two_models, two_runs, untrained_blocks
from anisoscope.subspaces import curved_tables
from anisoscope.utils import checksums, folder
from anisoscope.utils.compiled import CACHE
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json
from anisoscope.utils.processes import Stop


def run(config: Any, request: Request) -> None:
    """Run the requested stages: measure and figures."""
    root, stages = request.root, request.flags.stages
    to = drawing.figures_folder(request.flags.figures, root)
    keep_compiled(config.data.cache if isinstance(config, PretrainedConfig) else CACHE)
    if isinstance(config, ModelsConfig):
        if "measure" in stages:
            measure_model_list(config, root)
        if "figures" in stages:
            draw_models(config, root, to)
        return
    if isinstance(config, PretrainedConfig):
        request = request._replace(title=root.name or request.title)
        chosen = flags.parse_steps(request.flags.steps)
        measure_pretrained(config, root, request.title, with_tangents([config], stages), chosen)
    elif "measure" in stages:
        measure_untrained(config, root, request.title)
    if "figures" in stages:
        if not (root / "results.nc").exists():
            raise folder.missing_file(root, "results.nc", "measure")
        if not isinstance(config, PretrainedConfig):
            folder.claim_folder(root, config, new=False)
        if isinstance(config, UntrainedConfig | CurvedConfig):
            specs = draw.UNTRAINED_FIGURES if isinstance(config, UntrainedConfig) else draw.CURVED
            paths = draw.save_figures(specs, joined_files.read_table(root / "results.nc"), to)
            print(drawing.format_figures(paths, to))
        else:
            drawing.draw_figures({request.title: root}, to, root, "step", request.title)


def measure_untrained(config: Any, root: pathlib.Path, title: str) -> None:
    """Measure untrained blocks or curved manifolds."""
    folder.claim_folder(root, config, new=True)
    with folder.locked_folder(root):
        folder.record_environment(root, None)
        if isinstance(config, UntrainedConfig):
            with Stop() as stop:
                untrained_blocks.measure_blocks(config, root, title, stop)
        else:
            curved_tables.measure_manifolds(config, root, title)


def measure_pretrained(
    config: PretrainedConfig,
    root: pathlib.Path,
    title: str,
    stages: list[str],
    chosen: slice | None = None,
) -> None:
    """Measure the revisions of a pretrained model, and fit the tangents of its gradients."""
    if not {"measure", "tangents"} & {*stages}:
        return
    from anisoscope.sources.hf import revision_sweep  # late: nothing else needs torch
    from anisoscope.subspaces.hf import pretrained_tangents

    tangents = "tangents" in stages
    if tangents:
        pretrained_tangents.find_task(config)
    source = revision_sweep.open_revisions(config, root, title)
    # errors here come before the long measurement
    prepared = pretrained_tangents.prepare_study(source) if tangents else None
    with Stop() as stop:
        if "measure" in stages:
            correlate = functools.partial(on_disk.write_run, title, root)
            revision_sweep.measure_revisions(source, stop, correlate, chosen)
        if prepared:
            pretrained_tangents.measure_tangents(prepared, stop)


def measure_model_list(config: ModelsConfig, root: pathlib.Path) -> None:
    """Measure each pretrained model of a list in its own folder."""
    from anisoscope.sources.hf import model_list  # imports torch

    with Stop() as stop:
        model_list.measure_models(config, root, stop, on_disk.write_run)


def draw_models(config: ModelsConfig, root: pathlib.Path, to: pathlib.Path) -> None:
    """Draw a paper's figures from all measured models of a list."""
    path = root / pretrained_config.TABLE
    if not path.exists():
        raise folder.missing_file(root, pretrained_config.TABLE, "measure")
    known = read_json(path, "run --stages=measure again")
    labels = pretrained_config.model_labels(config.models)
    same = {label for label, x in known.items() if x["name"] == labels.get(label)}
    known = {label: known[label] for label in labels if label in same}
    if not known:
        raise UserError(f"{path} has none of {', '.join(labels)}; run --stages=measure first")
    runs = {label: drawing.load_run(root / label) for label in known}
    facts = {x: {key: known[x][key] for key in ("kind", "modality")} for x in known}
    models = {label: replace(runs[label], **facts[label]) for label in known}
    paths = draw.save_figures(draw.MODELS[config.paper], models, to)
    if config.paper == "inherent":
        tables = {label: run.results for label, run in runs.items()}
        correlations.write_correlations(tables, to / "correlations.csv")
    print(drawing.format_figures(paths, to))
    print(f"page:    {drawing.write_page(runs, to, root, root.resolve().name)}")


def compare_runs(first: str, second: str, workdir: str | None, figures: str | None) -> None:
    """Compare every layer of a run with every layer of another, and draw the comparison."""
    keep_compiled()
    if any(map(two_models.is_pretrained, (first, second))):
        from anisoscope.sources.hf import two_folders  # imports torch

        pair = two_folders.open_pretrained_pair(first, second)
    else:
        pair = two_runs.open_run_pair(first, second)
    name = f"similarity_{pair.labels[0]}_{pair.labels[1]}".replace("@", "_")
    root = pathlib.Path(workdir or f"runs/{name}")
    to = drawing.figures_folder(figures, root)
    folder.claim_folder(root, two_models.SimilarityConfig(runs=(first, second)), new=True)
    with folder.locked_folder(root):
        folder.record_environment(root, pair.text)
        table = two_models.measure_pair(pair)
        two_models.write_similarity(table, pair.labels, root)
    print(drawing.format_figures(draw.save_figures(draw.SIMILARITY_FIGURES, table, to), to))


def verify(config: Any, request: Request) -> None:
    """Check the folder and, for a list of models, each model's folder."""
    inner = {path.parent.name: path.parent for path in sorted(request.root.glob("*/config.json"))}
    checksums.verify_files({request.title: request.root} | inner)


def dry_run(config: Any, request: Request) -> None:
    """Print the folder and the settings."""
    print(f"folder: {request.root}", *flags.format_settings(config), sep="\n")
