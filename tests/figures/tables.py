"""Made-up runs in the form of results.nc and train.jsonl: a bell-shaped decoder and a flat encoder."""

from typing import Any

import numpy as np
import xarray as xr

from figures.run import Run

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
LAYERED = {  # variable: (name, unit)
    "anisotropy": ("anisotropy: top eigenvalue's share of the variance", "1"),
    "twonn": ("TwoNN intrinsic dimension", "1"),
    "twonn_mle": ("TwoNN intrinsic dimension, maximum likelihood", "1"),
    "twonn_microscope": ("TwoNN intrinsic dimension, LLM-Microscope", "1"),
    "mean_cosine": ("mean cosine of pairs", "1"),
    "drift": ("drift |E x|", "norm"),
}
BLOCKED = {
    "query_drift": ("query drift |E q|", "norm"),
    "key_drift": ("key drift |E k|", "norm"),
    "query_key_alignment": ("cos(E q, E k)", "1"),
    "query_key_cosine": ("mean cosine of queries with keys", "1"),
    "score_std_within": ("standard deviation of scores within a row", "1"),
    "attention_entropy": ("attention entropy", "nats"),
    "attention_max": ("largest attention weight of a row", "1"),
}


def run(
    causal: bool = True,
    steps: tuple[int, ...] = STEPS,
    layers: int = 6,
    batches: int = 4,
    heads: int = 8,
    seed: int = 0,
) -> Run:
    rng = np.random.default_rng([seed, causal])
    depth = np.arange(layers + 1) / layers
    grown = np.log1p(np.array(steps))[:, None] / np.log1p(1000)  # 0 at step 0, 1 at step 1000
    coords = {
        "step": list(steps),
        "positions": ["all", "without_first"],
        "layer": np.arange(layers + 1),
        "block": np.arange(1, layers + 1),
        "head": np.arange(heads),
        "depth": ("layer", depth),
    }
    bell = 0.1 + grown * (0.75 * np.sin(np.pi * depth) ** 2 if causal else 0.08 + 0 * depth)
    dimension = 12 + 10 * np.sin(np.pi * grown * 0.85) * (1 - 0.3 * depth) + 3 * (not causal)
    rise = grown * np.arange(1, layers + 1)
    shapes = {
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
    sides = np.array([1.0, 0.7])[:, None, None]
    table: dict[str, Any] = {}
    for name, (words, units) in (LAYERED | BLOCKED).items():
        dims = (
            ("step", "positions", "batch", "layer")
            if name in LAYERED
            else ("step", "positions", "batch", "block", "head")
        )
        values = shapes[name][:, None, None, :] * np.broadcast_to(sides, (2, batches, 1))
        if name in BLOCKED:
            values = values[..., None] * np.linspace(0.9, 1.1, heads)
        values = (values * (1 + 0.04 * rng.standard_normal(values.shape))).astype(np.float32)
        attrs = {"long_name": words, "units": units}
        mean = values.mean(2)
        std = values.std(2, ddof=1) if batches > 1 else np.full_like(mean, np.nan)
        short = dims[:2] + dims[3:]
        table |= {name: (dims, values, attrs), f"{name}_mean": (short, mean, attrs), f"{name}_std": (short, std, attrs)}
    attrs = {
        "run": "decoder" if causal else "encoder",
        "corpus": "enwik8, first 4,154,399 bytes",
        "model": f"{'causal' if causal else 'bidirectional'}, pre-LN, {layers} layers, D=512, H={heads}, T=512",
        "objective": "next" if causal else "masked",
        "steps": steps[-1],
        "seed": seed,
        "points": 4096,
        "batches": batches,
    }
    return Run(xr.Dataset(table, coords, attrs), log(rng, steps[-1], 2.3 if causal else 1.9))


def log(rng: np.random.Generator, last: int, floor: float) -> list[dict[str, Any]]:
    lines = []
    for step in range(1, last + 1, 10):
        bits = floor + 5.5 * (1 + step / 10) ** -0.6 + 0.05 * rng.standard_normal()
        lines.append({"step": step, "kind": "train", "loss": bits * np.log(2), "bits_per_character": bits})
    for step in range(0, last + 1, 100):
        bits = floor + 0.05 + 5.5 * (1 + step / 10) ** -0.6
        lines.append({"step": step, "kind": "valid", "loss": bits * np.log(2), "bits_per_character": bits})
    return lines
