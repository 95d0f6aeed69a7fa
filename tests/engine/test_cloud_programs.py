"""Few programs serve clouds of any number of points, and padding counts for nothing."""

import jax
import numpy as np
import pytest

import anisoscope
from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK
from anisoscope.engine import programs, sizes
from anisoscope.engine.cloud_programs import Selection, measure_layer
from anisoscope.engine.measure_clouds import make_constants
from anisoscope.metrics.registry import FAMILIES, select_kind
from anisoscope.metrics.resampling import TokenPositions
from anisoscope.sources.folds import cut_folds

POINTS, WIDTH, SIZE = 180, 12, 192
CLOUD = np.random.default_rng(0).normal(size=(SIZE, WIDTH)) * np.arange(1, WIDTH + 1) ** -0.5
CLOUD = np.float32(CLOUD + 0.5)
CLOUD[30:33] = CLOUD[4]
CLUSTER = np.arange(SIZE) // 9
POISONS = {"not finite": np.nan, "huge": 1e30, "copies": CLOUD[7]}
REST = tuple(name for name in select_kind(FAMILIES, "cloud") if not FAMILIES[name].reads_types)


def read(families, size=SIZE, poison=0.0):
    """Measure the points and their Gaussian null model beside what stands in the padding."""
    selection, folds = Selection(families, CLOUD_NULLS), cut_folds(POINTS, CLUSTER[:POINTS], 8, 0)
    places = TokenPositions(CLUSTER[:POINTS], np.arange(POINTS) % 9)
    layout = sizes.lay_out(folds, places, size)
    constants = make_constants(selection, POINTS, WIDTH, layout)
    x_PD = sizes.pad(CLOUD[:POINTS], size)
    x_PD[POINTS:] = poison
    run = programs.make_run(lambda takes: None)
    layer = measure_layer(run, x_PD, layout, selection, constants, jax.random.key(0), np.uint32(1))
    return jax.device_get(layer)


def test_numbers_of_points_folds_and_seeds_share_one_program_for_each_family():
    structures = (None, CLUSTER, np.arange(SIZE) * 7 // SIZE, np.sqrt(np.arange(SIZE)).astype(int))
    before = programs.count_programs()
    for number, points in enumerate(range(SIZE - 11, SIZE + 1)):
        labels = structures[number % 4]
        anisoscope.measure(
            CLOUD[:points],
            None if labels is None else labels[:points],
            folds=2 + number % 7,
            seed=number,
            quiet=True,
        )
    now = programs.count_programs()
    added = {name: count - before.get(name, 0) for name, count in now.items()}
    assert {*FIRST_LOOK, "find_copies", "find_neighbors", "draw_cloud"} <= now.keys()
    assert max(added.values()) <= 1, added  # places that are unknown are labels too


@pytest.mark.parametrize("families", [FIRST_LOOK, pytest.param(REST, marks=pytest.mark.slow)])
def test_padding_counts_for_nothing_to_the_bit(families):
    clean = read(families)
    for name, poison in POISONS.items():
        other = read(families, poison=poison)
        jax.tree.map(
            lambda a, b, name=name: np.testing.assert_array_equal(a, b, err_msg=name),
            (clean.values, clean.nearest_G),
            (other.values, other.nearest_G),
        )


@pytest.mark.slow
def test_another_size_of_padding_gives_the_same_numbers():
    """Only the random order of the steps of a walk depends on it."""
    one, other = (read(REST, size).values for size in (SIZE, 256))
    for values in (one, other):
        values["measured"].pop("curvature_random_walk")
    scale = {"rtol": 2e-5, "atol": 1e-6}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **scale), one, other)


def test_sizes_are_few_and_hold_a_point_more_or_less():
    assert [sizes.padded_size(points) for points in (8, 64, 65, 181, 192, 193)] == [
        *(64, 64, 128, 192, 192, 256)
    ]
    for size in (64, 128, 192, 256, 4096):
        fewest = sizes.fewest_points(size)
        assert sizes.padded_size(fewest) == sizes.padded_size(size) == size
        assert fewest == 2 or sizes.padded_size(fewest - 1) < size


def test_the_compiler_has_the_options_that_halve_a_first_call():
    """Where it lacks one, programs are compiled without them, which nobody would notice."""
    if jax.default_backend() == "cpu":
        jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=programs.CPU_OPTIONS)
