import jax
import numpy as np
import pytest

from anisoscope.metrics import logit_lens
from tests import reference_logit_lens as reference
from tests.metrics.clouds import rotation

LAYERS, POINTS, WIDTH, VOCABULARY = 4, 50, 16, 23
GENERATOR = np.random.default_rng(0)
CLOUDS = GENERATOR.normal(size=(LAYERS, POINTS, WIDTH)).cumsum(axis=0).astype(np.float32)
UNEMBEDDING = GENERATOR.normal(size=(WIDTH, VOCABULARY)).astype(np.float32)
SCALE, SHIFT = GENERATOR.normal(size=(2, WIDTH)).astype(np.float32) + 1
TARGET = GENERATOR.integers(-1, VOCABULARY, POINTS)
lens = jax.jit(logit_lens.lens)


@jax.jit
def alignment(cloud, how, keep=None):
    return logit_lens.alignment(cloud, logit_lens.token_directions(how), keep)


BIAS = GENERATOR.normal(size=VOCABULARY).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "more"), [*((kind, ()) for kind in logit_lens.NORM_KINDS), ("rms", (BIAS, 20.0))]
)
def test_agrees_with_float64_whatever_the_norm(kind, more):
    how = logit_lens.build_unembedding(UNEMBEDDING, kind, SCALE, SHIFT, 1e-3, *more)
    expected = reference.lens(CLOUDS, TARGET, UNEMBEDDING, kind, SCALE, SHIFT, 1e-3, *more)
    for name, one, other in zip(
        logit_lens.Lens._fields, lens(CLOUDS, how, TARGET), expected, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, err_msg=name)
    assert 0 < expected[4][0].mean() < 1
    for tokens in (VOCABULARY, 6):  # of which all that is left about their mean is 5 directions
        few = how._replace(unembedding_DV=how.unembedding_DV[:, :tokens])
        expected = reference.alignment(CLOUDS[0], UNEMBEDDING[:, :tokens], SCALE)
        np.testing.assert_allclose(alignment(CLOUDS[0], few), expected, rtol=1e-4)


def test_in_parts_it_is_the_same_as_at_once(monkeypatch):
    how = logit_lens.build_unembedding(UNEMBEDDING, "layer")
    whole = lens(CLOUDS, how, TARGET)
    # 50 points are no multiple of 7
    monkeypatch.setattr(logit_lens, "LOGITS_AT_ONCE", 7 * LAYERS * VOCABULARY)
    for one, other in zip(logit_lens.lens(CLOUDS, how, TARGET), whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_of_a_model_that_says_every_token_alike_and_of_one_that_is_sure():
    flat = lens(CLOUDS, logit_lens.build_unembedding(np.zeros_like(UNEMBEDDING)), TARGET)
    np.testing.assert_allclose(flat.entropy_NP, np.log(VOCABULARY), rtol=1e-6)
    np.testing.assert_array_equal(flat.divergence_NP, 0)
    np.testing.assert_array_equal(flat.settled_NP, 1)
    np.testing.assert_array_equal(np.asarray(flat.rank_NP)[:, TARGET >= 0], 1)
    axes = 1e3 * np.eye(WIDTH, dtype=np.float32)
    sure = lens(axes[None], logit_lens.build_unembedding(np.eye(WIDTH)), np.arange(WIDTH))
    np.testing.assert_allclose(sure.entropy_NP, 0, atol=1e-6)
    np.testing.assert_allclose(sure.log_probability_NP, 0, atol=1e-6)


def test_a_turn_of_both_and_a_logit_common_to_all_tokens_change_nothing():
    turn, common = rotation(WIDTH, 2), GENERATOR.normal(size=(WIDTH, 1))
    before = lens(CLOUDS, logit_lens.build_unembedding(UNEMBEDDING), TARGET)
    moved = logit_lens.build_unembedding((turn.T @ (UNEMBEDDING + common)).astype(np.float32))
    for one, other in zip(
        lens((CLOUDS @ turn).astype(np.float32), moved, TARGET), before, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(
        alignment(CLOUDS[0] @ turn, moved),
        alignment(CLOUDS[0], logit_lens.build_unembedding(UNEMBEDDING)),
        1e-3,
    )


def test_points_weighed_0_do_not_count_and_nan_is_told():
    how, keep = logit_lens.build_unembedding(UNEMBEDDING), np.float32(np.arange(POINTS) < 30)
    np.testing.assert_allclose(
        alignment(CLOUDS[0], how, keep), alignment(CLOUDS[0, :30], how), rtol=1e-4
    )
    cloud = CLOUDS.copy()
    cloud[1, 3, 0] = np.nan
    for value_NP in lens(cloud, how, np.maximum(TARGET, 0)):
        np.testing.assert_array_equal(np.isnan(value_NP), np.isnan(cloud[:, :, 0]))
    assert np.isnan(alignment(cloud[1], how))


def test_collapse_is_1_for_points_that_are_their_targets_and_nothing_for_what_is_unrelated():
    read, every = jax.jit(logit_lens.collapse, static_argnums=2), np.ones(POINTS, np.float32)
    means = GENERATOR.normal(size=(VOCABULARY, WIDTH))[TARGET]
    for noise in (0.3, 3.0):
        cloud = (means + noise * GENERATOR.normal(size=means.shape)).astype(np.float32)
        for moved in (cloud, 1e-9 * cloud, cloud + 100):
            found = read(moved, TARGET, VOCABULARY, every)
            np.testing.assert_allclose(
                found, reference.collapse(cloud, TARGET), rtol=1e-3, atol=1e-3
            )
        part = read(cloud, TARGET, VOCABULARY, np.float32(np.arange(POINTS) < 40))
        np.testing.assert_allclose(
            part, reference.collapse(cloud[:40], TARGET[:40]), rtol=1e-3, atol=1e-4
        )
    np.testing.assert_allclose(
        read(means.astype(np.float32), TARGET, VOCABULARY, every), 1, atol=1e-5
    )
    unrelated = GENERATOR.normal(size=(POINTS, 2000)).astype(np.float32)
    np.testing.assert_allclose(read(unrelated, TARGET, VOCABULARY, every), 0, atol=0.01)
    scattered = np.where(TARGET < 0, -1, 1000 * TARGET + 7)  # of more tokens than points
    found = read(cloud, scattered, 1000 * VOCABULARY, every)
    np.testing.assert_allclose(found, read(cloud, TARGET, VOCABULARY, every), rtol=1e-5)
    assert np.isnan(read(cloud, np.full(POINTS, -1), VOCABULARY, every))
    assert np.isnan(read(cloud, np.arange(POINTS), POINTS, every))
