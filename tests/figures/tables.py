"""Made-up runs in the form of results.nc and train.jsonl: a bell-shaped decoder and a flat encoder."""

import json
from typing import Any

import numpy as np
import xarray as xr

from analysis import results
from figures.run import Run

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def make_run(
    causal: bool = True,
    steps: tuple[int, ...] = STEPS,
    layers: int = 6,
    batches: int = 4,
    heads: int = 8,
    seed: int = 0,
    without: tuple[str, ...] = (),
    learning_rate: float = 1e-3,
) -> Run:
    rng = np.random.default_rng([seed, causal])
    attributes = {
        "run": "decoder" if causal else "encoder",
        "corpus": "enwik8, first 4,154,399 bytes",
        "model": f"{'causal' if causal else 'bidirectional'}, pre-LN, {layers} layers, D=512, H={heads}, T=512",
        "objective": "next" if causal else "masked",
        "steps": steps[-1],
        "seed": seed,
        "points": 4096,
        "batches": batches,
        "config": json.dumps({"train": {"learning_rate": learning_rate}, "objective": "next" if causal else "masked"}),
    }
    tables = []
    for step in steps:
        shapes = shapes_at(np.log1p(step) / np.log1p(1000), layers, causal)
        arrays = {
            name: noisy(rng, shape, batches, heads if shape.size == layers else None)
            for name, shape in shapes.items()
            if name not in without
        }
        tables.append(results.table(arrays, step, attributes))
    return Run(xr.concat(tables, "step"), make_log(rng, steps[-1], 2.3 if causal else 1.9))


def shapes_at(grown: float, layers: int, causal: bool) -> dict[str, np.ndarray]:
    """Each quantity over layers (0 .. N) or over blocks (1 .. N), when training has come so far (0 .. 1)."""
    depth = np.arange(layers + 1) / layers
    bell = 0.1 + grown * (0.75 * np.sin(np.pi * depth) ** 2 if causal else 0.08 + 0 * depth)
    dimension = 12 + 10 * np.sin(np.pi * grown * 0.85) * (1 - 0.3 * depth) + 3 * (not causal)
    rise = grown * np.arange(1, layers + 1)
    return {
        "anisotropy": bell,
        "twonn": dimension,
        "twonn_mle": 0.98 * dimension,
        "twonn_microscope": 0.9 * dimension,
        "mean_cosine": 0.02 + 0.6 * bell,
        "drift": 1 + 8 * bell,
        "query_drift": 0.3 + rise,
        "key_drift": 0.3 + 0.8 * rise,
        "query_key_alignment": -np.tanh(rise / 3) if causal else np.tanh(rise / 5),
        "query_key_cosine": -0.6 * np.tanh(rise / 3),
        "score_std_within": 0.1 + rise / 3,
        "attention_entropy": 5.2 - 0.5 * rise,
        "attention_max": 0.01 + np.tanh(rise / 10),
    }


def noisy(rng: np.random.Generator, shape: np.ndarray, batches: int, heads: int | None) -> np.ndarray:
    """(positions, batch, layer) or (positions, batch, block, head), float32, with 4 % of noise."""
    values = np.array([1.0, 0.7])[:, None, None] * np.ones((1, batches, 1)) * shape
    if heads is not None:
        values = values[..., None] * np.linspace(0.9, 1.1, heads)
    return (values * (1 + 0.04 * rng.standard_normal(values.shape))).astype(np.float32)


def make_log(rng: np.random.Generator, last: int, floor: float) -> list[dict[str, Any]]:
    lines = []
    for kind, steps in (("train", range(1, last + 1, 10)), ("valid", range(0, last + 1, 100))):
        for step in steps:
            bits = floor + 5.5 * (1 + step / 10) ** -0.6 + 0.05 * rng.standard_normal()
            lines.append({"step": step, "kind": kind, "loss": bits * np.log(2), "bits_per_character": bits})
    return lines
