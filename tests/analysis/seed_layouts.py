"""What tests of contrasts share: seeds of conditions, nested or crossed, and joined tables of
them.
"""

import numpy as np
import xarray as xr


def layout(conditions: int, seeds: int, data: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Condition of each run, and its (weight seed, data seed): of its own, or crossed with so many
    of the data.
    """
    pairs = [(s, s) for s in range(seeds)] if data is None else list(np.ndindex(seeds, data))
    return np.repeat(np.arange(conditions), len(pairs)), np.tile(pairs, (conditions, 1))


def experiment(
    conditions: list[dict], seeds: int, effect=lambda condition, seed: 0.0
) -> xr.Dataset:
    """A joined table: `conditions` are the settings of each, in the order of the experiment."""
    members = [(c, s) for s in range(seeds) for c in range(len(conditions))]
    values = np.array([effect(conditions[c], s) for c, s in members])
    coords = {
        name: ("run", np.array([conditions[c][name] for c, _ in members])) for name in conditions[0]
    }
    coords |= {
        name: ("run", np.array([s for _, s in members]))
        for name in ("train.seed", "train.data_seed")
    }
    coords |= {
        "run": [f"{c}_{s}" for c, s in members],
        "condition": ("run", [f"condition {c}" for c, _ in members]),
    }
    both = np.stack([values, 2 * values], axis=1)
    variables = {
        "middle_minus_ends": (("run", "positions"), both),
        "test_bits": ("run", values + 1),
        "test_gain_over_unigram": ("run", -values),
    }
    return xr.Dataset(variables, coords | {"positions": ["all", "without_first_token"]})


def grid_of_leaks(gains: list[float]) -> xr.Dataset:
    """Two conditions, p and q, of two weight seeds × two leak seeds."""
    condition, (weights, leaks) = np.repeat([0, 1], 4), np.tile([[0, 0, 1, 1], [0, 1, 0, 1]], 2)
    coords = {"run": np.arange(8), "condition": ("run", np.array(["p", "q"])[condition])}
    coords |= dict.fromkeys(("train.seed", "train.data_seed"), ("run", weights))
    coords |= {"model.leak_seed": ("run", leaks), "model.sink": ("run", condition == 1)}
    return xr.Dataset({"test_gain_over_unigram": ("run", gains)}, coords)
