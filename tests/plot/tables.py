"""Made-up runs in the form of results.nc and train.jsonl: a bell-shaped decoder and a flat encoder.

Raw values with replicates pass through the very functions that make real tables, so that the form
is the true one.
"""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import DEFAULT_FAMILIES, MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import WATCHED_BLOCKS, WATCHED_LAYERS, TrainConfig
from anisoscope.metrics.frequency import BINS
from anisoscope.metrics.quantity import MEASURED
from anisoscope.metrics.registry import coordinates, null_models_for, quantities
from anisoscope.models.model_settings import describe_model
from anisoscope.plot.run_tables import Run
from anisoscope.results.join import join_steps
from anisoscope.results.replicates_table import build_table
from anisoscope.results.summary import block_average, excess_name, over_heads
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.subspaces import tangent_quantities
from anisoscope.subspaces.tangent_quantities import (
    FITS,
    GRADIENT_ROWS,
    MATRICES,
    SUBSPACE_KINDS,
    WEIGHT_CHANGES,
)

STEPS = (0, 1, 4, 32, 128, 1000)
NULLS = ("gaussian", "shuffled", "untrained", "permuted")
FIRST_HAS_NONE = ("cka_previous", "neighbor_overlap_previous")  # no checkpoint before it


def make_run(
    causal: bool = True,
    steps: tuple[int, ...] = STEPS,
    layers: int = 6,
    batches: int = 4,
    heads: int = 8,
    seed: int = 0,
    without: tuple[str, ...] = (),
    folds: int = 8,
    nulls: tuple[str, ...] = NULLS,
) -> Run:
    rng = np.random.default_rng([seed, causal])
    config = Config(
        model=ModelConfig(layers=layers, heads=heads, mask="causal" if causal else "bidirectional"),
        objective="next" if causal else "masked",
        train=TrainConfig(steps=steps[-1], learning_rate=1e-3, seed=seed),
        measure=MeasureConfig(batches=batches, folds=folds, nulls=nulls),
    )
    attributes = {
        "run": "decoder" if causal else "encoder",
        "corpus": "enwik8, first 4,154,399 bytes",
        "corpus_sha256": "digest",
        "model": describe_model(config.model),
        "objective": config.objective,
        "steps": steps[-1],
        "seed": config.train.seed,
        "points": config.measure.points,
        "batches": batches,
        "folds": folds,
        "config": json.dumps(dataclasses.asdict(config)),
    }
    raw = {}
    for step in steps:
        shapes = shapes_at(np.log1p(step) / np.log1p(1000), layers, causal)
        values = {
            cloud: {} for cloud in (MEASURED, *(null for null in nulls if null != "untrained"))
        }
        for name in (name for name in shapes if name not in without):
            for cloud, arrays in values.items():
                if cloud in (MEASURED, *null_models_for(name)):
                    arrays[name] = noisy(
                        rng, as_null(shapes[name], cloud), name, batches, heads, folds
                    )
            if step == steps[0] and name in FIRST_HAS_NONE:
                values[MEASURED][name] *= np.nan
        raw[step] = build_table(values, step, POSITION_SETS, attributes)
    results, _ = join_steps(raw, DEFAULT_FAMILIES, nulls)
    results.attrs = attributes
    gains = [4.5 - 5.0 * (1 + step / 10) ** -0.6 for step in steps]
    results["validation_gain_over_unigram"] = "step", gains, {"units": "bit"}
    blocks = results.isel(layer=slice(1, None))  # as of hook points, which have no embedding
    hook_points = {"attention_out": blocks, "values": blocks * 0.5}
    log = make_log(rng, steps[-1], 2.3 if causal else 1.9, layers)
    return Run(results, log, hook_points=hook_points)


def changed(run: Run, change: Callable[[xr.Dataset], xr.Dataset]) -> Run:
    """A run with a changed table; the original run stays as it was."""
    return Run(change(run.results.copy(deep=True)), run.log, hook_points=run.hook_points)


def lacking(run: Run, *names: str) -> Run:
    """As if these quantities had not been measured."""
    gone = [one for name in names for one in (name, over_heads(name), block_average(name))]
    gone += [excess_name(name) for name in gone]
    return changed(run, lambda table: table.drop_vars(gone, errors="ignore"))


def with_nulls(run: Run, *nulls: str) -> Run:
    """As if it had been measured with only these null models."""
    return changed(
        run, lambda table: table.sel(null=list(nulls)) if nulls else table.drop_dims("null")
    )


def with_excess(table: xr.Dataset, null: str) -> xr.Dataset:
    """Beside a null model that is 0 throughout."""
    excess = {
        name: array.expand_dims(null=[null]).copy(deep=True)
        for name, array in table.data_vars.items()
    }
    return table.assign(
        {excess_name(name): array.assign_attrs(excess_of=name) for name, array in excess.items()}
    )


def spoiled(run: Run, **where: int) -> Run:
    """With NaN in every quantity that has these dimensions, as a degenerate cloud leaves it."""

    def spoil(table: xr.Dataset) -> xr.Dataset:
        for variable in table.data_vars.values():
            if set(where) <= set(variable.dims):
                variable[where] = np.nan
        return table

    return changed(run, spoil)


def under(run: Run, settings: dict[str, Any]) -> Run:
    """As if it had been made under other settings (by dotted name)."""
    config = json.loads(run.results.attrs["config"])
    for name, value in settings.items():
        group, _, field = name.partition(".")
        config[group][field] = value
    return changed(run, lambda table: table.assign_attrs(config=json.dumps(config)))


PLAIN = (  # quantities whose values are only told apart
    *("effective_rank", "participation_ratio", "alpha_req", "top_coordinate_variance_share"),
    *("anisotropy_without_top_coordinates", "anisotropy_without_longest", "frequency_correlation"),
    *("mean_cosine_without_longest", "drift_without_longest", "twonn_without_longest", "twonn_mle"),
    *("twonn_microscope", "gride", "centroid_distance", "centroid_distance_by_frequency"),
    *("cka_layers", "cka_unbiased_layers", "neighbor_overlap_layers", "cka_previous", "cka_last"),
    *("neighbor_overlap_previous", "neighbor_overlap_last", "query_drift", "key_drift"),
    *("query_key_cosine", "score_std_within", "attention_entropy", "attention_max"),
    *("attention_min", "attention_first_token", "attention_most_attended", "query_fluctuation"),
    *("key_fluctuation", "score_share_of_means"),
)


def shapes_at(grown: float, layers: int, causal: bool) -> dict[str, np.ndarray]:
    """Each quantity over layers (0 .. N) or over blocks (1 .. N), when training has come so far (0
    .. 1).
    """
    depth = np.arange(layers + 1) / layers
    bell = 0.1 + grown * (0.75 * np.sin(np.pi * depth) ** 2 if causal else 0.08 + 0 * depth)
    sizes = {"layer": layers + 1, "other_layer": layers + 1, "block": layers}
    sizes |= {name: len(labels) for name, labels in coordinates().items()}
    plain = {}
    for number, name in enumerate(PLAIN):
        shape = [sizes[dim] for dim in quantities()[name].dims if dim != "head"]
        steps = np.linspace(0.2, 0.2 + 0.5 * grown, int(np.prod(shape))).reshape(shape)
        plain[name] = steps * (1 + number / 40)
    return plain | {
        "anisotropy": bell,
        "first_token_variance_share": 0.8 * bell,
        "twonn": 12 + 10 * np.sin(np.pi * grown * 0.85) * (1 - 0.3 * depth) + 3 * (not causal),
        "mean_cosine": 0.02 + 0.6 * bell,
        "drift": 1 + 8 * bell,
        "query_key_alignment": (-1 if causal else 1)
        * np.tanh(grown * np.arange(1, layers + 1) / 3),
    }


def as_null(shape: np.ndarray, null: str) -> np.ndarray:
    """A Gaussian cloud fills more dimensions; of shuffled text half the shape is left, of permuted
    windows little.
    """
    return {"gaussian": 2.0, "shuffled": 0.5, "permuted": 0.1}.get(null, 1.0) * shape


def noisy(
    rng: np.random.Generator, shape: np.ndarray, name: str, batches: int, heads: int, folds: int
) -> np.ndarray:
    """Raw values with 4 % of noise between batches, and replicates that agree with it; float32."""
    values, about = np.multiply.outer(np.ones((batches, 1)) * [1.0, 0.7], shape), quantities()[name]
    if "head" in about.dims:
        values = values[..., None] * np.linspace(0.9, 1.1, heads)
    values = values * (1 + 0.04 * rng.standard_normal(values.shape))
    if about.resampling:
        count, noise = (folds, 0.04 / (folds - 1) * folds**0.5) if folds > 1 else (0, 0.0)
        if "sections" in about.resampling and count:
            count, noise = 4, 0.04 * 2
        spread = noise * rng.standard_normal((*values.shape, count))
        values = np.concatenate([values[..., None], values[..., None] * (1 + spread)], axis=-1)
    if about.resampling == "share_sections":
        values = np.minimum(values, 1.0)
    return values.astype(np.float32)


def make_log(
    rng: np.random.Generator, last: int, floor: float, layers: int
) -> list[dict[str, Any]]:
    lines = []
    for kind, steps in (("train", range(1, last + 1, 10)), ("valid", range(0, last + 1, 100))):
        for step in steps:
            bits = floor + 5.5 * (1 + step / 10) ** -0.6 + 0.05 * rng.standard_normal()
            line = {"step": step, "kind": kind, "bits_per_character": bits}
            score = {"gain_over_unigram": 5.0 - bits, "context_free_bits": 5.0}
            lines.append(line | (score if kind == "valid" else {}))
    for step in range(1, max(last, 1) + 1, 8):
        line = {name: (0.2 + 0.1 * rng.random(layers + 1)).tolist() for name in WATCHED_LAYERS}
        line |= {name: (0.1 * rng.random(layers)).tolist() for name in WATCHED_BLOCKS}
        lines.append({"step": step, "kind": "watch"} | line)
    return lines


def make_tangents(seed: int = 0, layers: int = 3) -> xr.Dataset:
    """A tangents.nc of made-up numbers."""
    rng, variables = np.random.default_rng(seed), {}
    labels = {"step": [0, 1, 2, 4, 8, 10], "rank": [4, 16], "layer": range(layers), "fit": FITS}
    labels |= {
        "kind": SUBSPACE_KINDS,
        "rows": GRADIENT_ROWS,
        "bin": BINS,
        "matrix": MATRICES,
        "of": WEIGHT_CHANGES,
    }
    labels = {dim: list(own) for dim, own in labels.items()}
    quantities = tangent_quantities.TANGENT_MEASURED | tangent_quantities.DERIVED
    for name, quantity in quantities.items():
        dims = ("step", *(dim for dim in quantity.dims if dim != "control"))
        values = rng.uniform(0.2, 0.8, [len(labels[dim]) for dim in dims])
        if quantity.resampling or "control" in quantity.dims:
            low, high = (rng.uniform(0.01, 0.1, values.shape) for _ in "lh")
            dims, values = ("statistic", *dims), np.stack([values, values - low, values + high])
        variables[name] = dims, values, quantity.attributes
    attrs = {"corpus": "letters", "model": "causal, 2 layers", "objective": "next", "steps": 10}
    attrs |= {"config": json.dumps({"train": {"seed": seed, "data_seed": 0}}), "seed": seed}
    attrs |= {"points": 64, "width": 63, "folds": 4, "sample": "64 scored positions of 8 windows"}
    attrs |= {"positions": "scored ones", "windows": "8", "early_steps": "[1, 2]"}
    return xr.Dataset(variables, labels | {"statistic": ["mean", "low", "high"]}, attrs)
