"""Comparisons of clouds, and their null model: the windows of one cloud in another order."""

import jax
import numpy as np
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.engine import null_models
from anisoscope.metrics.comparison import NEIGHBORS
from anisoscope.metrics.quantity import MEASURED
from anisoscope.sources.activations import BatchActivations, batch_keys, measure_batch
from tests import reference_comparison as reference

WINDOWS, TIME, WIDTH, FOLDS = 24, 16, 8, 4
POINTS = WINDOWS * (TIME - 4)  # some positions of each fold are left out
KEY = batch_keys(3, 1)[0]
TWINS = {
    "cka": reference.linear_cka,
    "cka_unbiased": reference.linear_cka_unbiased,
    "neighbor_overlap": lambda x, y: reference.neighbor_overlap(x, y, NEIGHBORS),
}


def picks():
    """So many of each fold, in random order."""
    generator = np.random.default_rng(0)
    places = np.arange(WINDOWS * TIME).reshape(FOLDS, -1)
    return np.concatenate(
        [generator.permutation(fold)[: POINTS // FOLDS] for fold in places]
    ).astype(np.int32)


PICKS = picks()


def found(first, second):
    """Compare two layers, also with a checkpoint that has them in reverse order."""
    layers = np.float32([first, second]).reshape(2, WINDOWS, TIME, WIDTH)
    settings = MeasureConfig(
        points=POINTS, batches=1, folds=FOLDS, families=("comparison",), nulls=("permuted",), seed=3
    )
    read, others, visible = (
        BatchActivations(layers[None]),
        {"last": layers[::-1]},
        np.ones((1, TIME, TIME)),
    )
    values = measure_batch(0, read, others, PICKS[None], visible, settings)
    return jax.tree.map(lambda value: value[0, 0], values)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape or (WINDOWS * TIME, WIDTH))


def by_position(seed):
    """The same for a position in every window."""
    return np.tile(3 * normal(seed, TIME, WIDTH), (WINDOWS, 1))


@pytest.mark.parametrize("windows", [2, 3, WINDOWS])
def test_every_window_gives_way_to_another_and_positions_stay(windows):
    picks = PICKS[windows * TIME > PICKS]
    order = np.asarray(null_models.permuted(picks, windows, TIME, KEY))
    np.testing.assert_array_equal(order % TIME, picks % TIME)
    pairs = set(zip(picks // TIME, order // TIME, strict=True))
    assert all(here != there for here, there in pairs)
    assert len(pairs) == len({there for _, there in pairs}) == windows  # whole windows
    within = PICKS[:4] % TIME
    np.testing.assert_array_equal(null_models.permuted(within, 1, TIME, KEY), within)


@pytest.mark.slow
def test_values_and_the_null_model_are_those_of_the_float64_twins():
    first, second = normal(0) + by_position(1), normal(0) @ normal(2, WIDTH, WIDTH) + by_position(3)
    values = found(first, second)
    order = np.asarray(null_models.permuted(PICKS, WINDOWS, TIME, KEY))
    layers = np.float32([first, second])
    for kind, twin in TWINS.items():
        for name, place in {"layers": (0, 1), "last": (0,)}.items():
            for cloud, points in {MEASURED: PICKS, "permuted": order}.items():
                expected = twin(layers[0, points], layers[1, PICKS])
                got = values[cloud][f"{kind}_{name}"][place][0]
                assert got == pytest.approx(expected, rel=1e-4, abs=1e-6)
    left = np.arange(POINTS) >= POINTS // FOLDS
    expected = TWINS["cka_unbiased"](layers[0, order[left]], layers[1, PICKS[left]])
    assert values["permuted"]["cka_unbiased_layers"][0, 1, 1] == pytest.approx(
        expected, rel=1e-4, abs=1e-6
    )
