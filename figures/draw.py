"""Draw every figure that the tables allow."""

import pathlib

import pandas as pd

from figures import (
    anisotropy_by_checkpoint,
    anisotropy_profile,
    attention_sharpness,
    change_over_training,
    contrasts,
    cosine_against_drift,
    dimension_by_scale,
    dimension_over_training,
    excess_over_nulls,
    layer_similarity,
    outlier_coordinates,
    query_key_drift,
    query_key_fluctuation,
    query_key_projection,
    runs_compared,
    sharpness_against_alignment,
    spectrum_over_training,
    style,
    training_curve,
)
from figures.run import Run
from studies import correlations

FIGURES = {
    "anisotropy_profile": anisotropy_profile.build,
    "dimension_over_training": dimension_over_training.build,
    "anisotropy_by_checkpoint": anisotropy_by_checkpoint.build,
    "spectrum_over_training": spectrum_over_training.build,
    "dimension_by_scale": dimension_by_scale.build,
    "outlier_coordinates": outlier_coordinates.build,
    "excess_over_nulls": excess_over_nulls.build,
    "layer_similarity": layer_similarity.build,
    "change_over_training": change_over_training.build,
    "query_key_drift": query_key_drift.build,
    "query_key_fluctuation": query_key_fluctuation.build,
    "query_key_projection": query_key_projection.build,
    "attention_sharpness": attention_sharpness.build,
    "sharpness_against_alignment": sharpness_against_alignment.build,
    "cosine_against_drift": cosine_against_drift.build,
    "training_curve": training_curve.build,
}


def draw(runs: dict[str, Run], folder: pathlib.Path) -> list[pathlib.Path]:
    """Compare the runs (label -> Run) in each figure; PNG and PDF under `folder`. Returns the paths written.

    Of several runs correlations.csv too, where they are pooled. What no longer applies is removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.context():
        for name, build in FIGURES.items():
            paths += style.save(build(runs), folder, name)
    pooled = folder / "correlations.csv"
    if len(runs) == 1:
        pooled.unlink(missing_ok=True)
        return paths
    correlations.write({label: run.results for label, run in runs.items()}, pooled)
    return [*paths, pooled]


def draw_experiment(
    runs: dict[str, Run], rows: pd.DataFrame, changes: pd.DataFrame, folder: pathlib.Path
) -> list[pathlib.Path]:
    """The figures of all cells of an experiment (label -> Run), from runs.csv and contrasts.csv."""
    paths = []
    with style.context():
        for name, figure in (
            ("runs_compared", runs_compared.build(runs, rows)),
            ("contrasts", contrasts.build(runs, changes)),
        ):
            paths += style.save(figure, folder, name)
    return paths
