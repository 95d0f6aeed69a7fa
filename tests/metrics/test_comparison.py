import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.zoo import ZOO
from metrics.comparison import layers_cka, layers_overlap, linear_cka, neighbourhood_overlap
from metrics.neighbours import nearest_neighbours
from tests import reference_comparison as reference
from tests.metrics.clouds import CLOUDS as SHAPES
from tests.metrics.clouds import gaussian, rotation

CLOUDS = SHAPES | {f"zoo: {name}": member.draw(np.random.default_rng(1), 256) for name, member in ZOO.items()}
COUNT = 5

cka = jax.jit(linear_cka, static_argnames="groups")


def other(cloud, width=7, noise=0.5):
    """A second cloud that has something of the first: a projection of it, and noise of half its size."""
    cloud = np.asarray(cloud, np.float32)
    generator = np.random.default_rng(5)
    projected = (cloud - cloud.mean(0)) @ generator.normal(size=(cloud.shape[1], width))
    return (projected + noise * projected.std() * generator.normal(size=projected.shape) + 1).astype(np.float32)


def neighbours(cloud, count=COUNT):
    return nearest_neighbours(jnp.asarray(cloud), count)


def overlap(a, b, count=COUNT):
    return float(neighbourhood_overlap(neighbours(a, count), neighbours(b, count), count))


@pytest.mark.parametrize("name", CLOUDS)
def test_cka_agrees_with_the_float64_twin(name):
    cloud = jnp.asarray(CLOUDS[name])
    second = jnp.asarray(other(cloud))
    expected = reference.linear_cka(cloud, second)
    assert 0.01 < expected < 0.999
    np.testing.assert_allclose(cka(cloud, second), [expected], rtol=1e-4)


@pytest.mark.parametrize("name", ["gaussian", "mean 1000 x spread", "rogue coordinate", "zoo: mean 1000 spreads"])
def test_cka_without_a_group_is_that_of_the_others(name):
    """The points of each group have a mean of their own, which the centre must follow."""
    groups = 4
    cloud = CLOUDS[name][: len(CLOUDS[name]) // groups * groups].copy()
    size = len(cloud) // groups
    cloud += 2 * cloud.std(0) * np.repeat(np.arange(groups, dtype=np.float32), size)[:, None]
    second = other(cloud)
    found = cka(jnp.asarray(cloud), jnp.asarray(second), groups=groups)
    left = [[np.delete(z, np.s_[j * size : (j + 1) * size], axis=0) for z in (cloud, second)] for j in range(groups)]
    np.testing.assert_allclose(found, [reference.linear_cka(*pair) for pair in [(cloud, second), *left]], rtol=1e-4)
    assert np.ptp(found) > 1e-3


def test_known_cka():
    """Of single columns it is their squared correlation; for independent clouds not zero, as the docstring says."""
    cloud = gaussian(500, 2)
    expected = np.corrcoef(cloud.T)[0, 1] ** 2
    assert cka(jnp.asarray(cloud[:, :1]), jnp.asarray(cloud[:, 1:])) == pytest.approx(expected, rel=1e-4)
    independent = cka(jnp.asarray(gaussian(1024, 128)), jnp.asarray(gaussian(1024, 64, seed=1)))
    assert independent == pytest.approx(np.sqrt(128 * 64 / ((1024 + 128) * (1024 + 64))), rel=0.05)


def test_cka_of_what_does_not_vary_or_is_not_finite_is_nan():
    cloud = jnp.asarray(gaussian(12, 3))
    same = jnp.full((12, 4), 0.1)
    assert jnp.isnan(cka(cloud, same, groups=3)).all()
    assert jnp.isnan(cka(cloud, cloud.at[4, 1].set(jnp.nan), groups=3)).all()
    both = layers_cka(jnp.stack([cloud, same[:, :3]]), 3)
    assert jnp.isfinite(both[:, 0, 0]).all()
    assert jnp.isnan(both[:, 1]).all()
    assert jnp.isnan(both[:, :, 1]).all()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(1e-12, 1e12), shift=st.floats(-100, 100))
def test_cka_does_not_see_rotation_scale_translation_or_order(seed, scale, shift):
    cloud, second = gaussian(60, 6, seed), other(gaussian(60, 6, seed))
    before = cka(jnp.asarray(cloud), jnp.asarray(second))
    moved = ((cloud + shift) @ rotation(6, seed) * scale).astype(np.float32)
    order = np.random.default_rng(seed).permutation(60)
    np.testing.assert_allclose(cka(jnp.asarray(moved[order]), jnp.asarray(second[order])), before, rtol=1e-4)
    np.testing.assert_allclose(cka(jnp.asarray(moved), jnp.asarray(cloud)), 1, rtol=1e-4)
    np.testing.assert_allclose(cka(jnp.asarray(second), jnp.asarray(cloud)), before, rtol=1e-5)


@pytest.mark.parametrize("groups", [1, 3])
def test_layers_cka_is_linear_cka_of_every_pair(groups):
    clouds = jnp.stack([gaussian(60, 7), other(gaussian(60, 7)), 10 * gaussian(60, 7, seed=8) + 3])
    found = jax.jit(layers_cka, static_argnames="groups")(clouds, groups=groups)
    assert found.shape == (1 if groups == 1 else 1 + groups, 3, 3)
    for n in range(3):
        for m in range(3):
            np.testing.assert_allclose(found[:, n, m], cka(clouds[n], clouds[m], groups=groups), rtol=1e-5)
    np.testing.assert_allclose(jnp.diagonal(found, axis1=1, axis2=2), 1, rtol=1e-6)
    np.testing.assert_array_equal(found, jnp.swapaxes(found, 1, 2))


@pytest.mark.parametrize("name", [name for name in CLOUDS if name != "few points"])
def test_overlap_agrees_with_sets(name):
    """A neighbour more or less, where two are as far in float32, is 1/count of one point's share."""
    cloud = CLOUDS[name]
    second = other(cloud, noise=0.1)
    expected = reference.neighbourhood_overlap(cloud, second, COUNT)
    assert 0.02 < expected < 0.98
    assert overlap(cloud, second) == pytest.approx(expected, rel=1e-4)


def test_known_overlaps():
    """Nearest of the four points: 1 0 1 2 on one line, 2 3 0 2 on the other."""
    line, folded = (np.array([values], np.float32).T for values in ([0, 1, 3, 7], [0, 7, 1, 3]))
    assert overlap(line, folded, 1) == 0.25
    assert overlap(line, 3 - 7 * line, 2) == 1
    cloud = gaussian(400, 3)
    assert overlap(cloud, np.random.default_rng(0).permutation(cloud), 10) == pytest.approx(10 / 399, rel=0.15)
    farther = neighbours(cloud, 30)
    assert float(neighbourhood_overlap(farther, neighbours(cloud, 10), 10)) == 1  # the nearest of a longer list


def test_copies_stand_for_one_another_within_a_cloud_and_not_across_two():
    """0 and 3 are copies in a, where 0 stands for both and 3 is not asked; b tells them apart.

    The nearest of points 0, 1, 2 and 4 is 1, 0, 1, 2 in a and 2, 3, 1, 0 in b: that of 1, 0 or its copy, differs.
    """
    a = np.array([[0.0, 1.0, 5.0, 0.0, 20.0]], np.float32).T
    b = np.array([[9.0, 1.1, 5.0, 0.0, 20.0]], np.float32).T
    assert overlap(a, b, 1) == overlap(b, a, 1) == 0.25
    assert overlap(a, a, 1) == 1


def test_overlap_asks_for_as_many_neighbours_as_it_counts():
    few = neighbours(CLOUDS["gaussian"], 4)
    with pytest.raises(ValueError, match="5 neighbours are needed, 4 were searched"):
        neighbourhood_overlap(few, few, 5)


def test_overlap_without_enough_neighbours_is_nan():
    few, many = np.repeat(gaussian(4, 2), 5, axis=0), gaussian(20, 2)
    assert overlap(few, few, 3) == 1
    assert np.isnan(overlap(few, many, 4))
    assert np.isnan(overlap(many, few, 4))
    assert np.isnan(overlap(many, np.full((20, 2), np.nan, np.float32), 4))


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**16), scale=st.floats(0.01, 100))
def test_overlap_does_not_see_rotation_scale_or_order(seed, scale):
    cloud, second = gaussian(60, 6, seed), other(gaussian(60, 6, seed))
    before = overlap(cloud, second)
    moved = (cloud @ rotation(6, seed) * scale + 1).astype(np.float32)
    order = np.random.default_rng(seed).permutation(60)
    assert overlap(moved[order], second[order]) == pytest.approx(before, abs=1e-6)
    assert overlap(second, cloud) == before


def test_layers_overlap_is_the_overlap_of_every_pair():
    clouds = jnp.stack([gaussian(60, 7), other(gaussian(60, 7)), gaussian(60, 7, seed=8)])
    of_layers = jax.vmap(lambda cloud: nearest_neighbours(cloud, COUNT))(clouds)
    found = jax.jit(layers_overlap, static_argnames="count")(of_layers, count=COUNT)
    expected = [[overlap(a, b) for b in clouds] for a in clouds]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(jnp.diagonal(found), 1)


def test_jit_and_vmap_change_nothing():
    clouds = jnp.stack([gaussian(33, 5, seed) + 1 for seed in range(3)])
    one_by_one = jnp.stack([linear_cka(cloud, clouds[0], 3) for cloud in clouds])
    np.testing.assert_allclose(jax.vmap(lambda cloud: linear_cka(cloud, clouds[0], 3))(clouds), one_by_one, rtol=1e-5)
    np.testing.assert_allclose([cka(cloud, clouds[0], groups=3) for cloud in clouds], one_by_one, rtol=1e-5)
