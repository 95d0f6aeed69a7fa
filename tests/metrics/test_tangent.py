import jax
import numpy as np
import pytest

from anisoscope.metrics import tangent
from anisoscope.metrics.decomposition import spectrum
from anisoscope.metrics.spectrum import read_isoscore
from tests import reference_tangent as reference
from tests.metrics.clouds import rotation

POINTS, WIDTH, RANK, COUNT = 240, 24, 4, 20

semi_nmf = jax.jit(tangent.semi_nmf, static_argnums=2)
start = jax.jit(tangent.initial_weights, static_argnums=2)
principal = jax.jit(tangent.principal_directions, static_argnums=1)
energy, variance_share = jax.jit(tangent.energy_share), jax.jit(tangent.variance_share)
random_frames = jax.jit(tangent.random_frames, static_argnums=2)
equal_energy_frames = jax.jit(tangent.equal_energy_frames, static_argnums=3)
isoscore_outside = jax.jit(
    lambda frame, points: tangent.isoscore_outside(frame, tangent.covariance(points))
)
local_tangent = jax.jit(tangent.local_tangent, static_argnums=(3, 4))


def stretched(seed=0, points=POINTS):
    """Points whose coordinates vary unequally about a mean, turned."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(points, WIDTH)) * np.geomspace(1, 0.05, WIDTH) + 0.3
    return (x @ rotation(WIDTH, 3)).astype(np.float32)


def frame(seed=1, rank=RANK):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(WIDTH, rank)))[0].astype(
        np.float32
    )


def is_orthonormal(frames):
    frames = np.asarray(frames, np.float64)
    eye = np.eye(frames.shape[-1])
    return np.abs(np.swapaxes(frames, -1, -2) @ frames - eye).max() < 1e-5


def test_semi_nmf_is_that_of_the_printed_rule_and_never_gets_worse():
    points = stretched()
    begin = np.asarray(start(points, jax.random.key(0), RANK))
    factors = semi_nmf(points, begin, 40)
    weight, concept, residual = reference.semi_nmf(points, begin, 40)
    np.testing.assert_allclose(factors.residual_Y, residual, rtol=1e-3)
    np.testing.assert_allclose(factors.weight_PE @ factors.concept_ED, weight @ concept, atol=2e-3)
    assert (np.asarray(factors.weight_PE) >= 0).all()
    assert (np.diff(factors.residual_Y) < 1e-6).all()
    assert factors.residual_Y[-1] < factors.residual_Y[0] - 0.01
    turned = semi_nmf(points @ rotation(WIDTH).astype(np.float32) * np.float32(1e-4), begin, 40)
    np.testing.assert_allclose(turned.residual_Y, factors.residual_Y, rtol=1e-3)


def test_a_start_gives_every_point_to_the_nearest_of_points_drawn():
    points = stretched()
    begin = np.asarray(start(points, jax.random.key(2), RANK))
    assert set(np.unique(begin)) == {np.float32(0.2), np.float32(1.2)}
    np.testing.assert_allclose(begin.sum(1), 1 + 0.2 * RANK, rtol=1e-6)
    with pytest.raises(ValueError, match="rank is 9, and there are 5 points"):
        tangent.initial_weights(points[:5], jax.random.key(0), 9)
    # copies of 12 points
    few = points[np.random.default_rng(0).choice(12, POINTS, p=np.r_[0.89, np.full(11, 0.01)])]
    for seed in range(3):
        assert len(np.unique(start(few, jax.random.key(seed), RANK), axis=1).T) == RANK


@pytest.mark.parametrize("rank", [1, RANK])
def test_frames_are_orthonormal_and_agree_with_float64(rank):
    points = stretched()
    directions = principal(points, rank)
    np.testing.assert_allclose(
        reference.projector(directions),
        reference.projector(reference.principal(points, rank)),
        atol=1e-4,
    )
    concept = np.random.default_rng(0).normal(size=(rank, WIDTH)).astype(np.float32)
    spanned = tangent.orthonormal(concept)
    np.testing.assert_allclose(
        reference.projector(spanned), reference.projector(concept.T), atol=1e-5
    )
    others = random_frames(directions, jax.random.key(0), COUNT)
    alike = equal_energy_frames(directions, points.T @ points, jax.random.key(0), COUNT)
    assert all(map(is_orthonormal, (directions, spanned, others, alike)))
    assert np.abs(np.swapaxes(np.asarray(others), 1, 2) @ np.asarray(directions)).max() < 1e-5
    wide = np.eye(5, 3, dtype=np.float32)
    with pytest.raises(
        ValueError, match="2 frames of rank 3 need 6 dimensions, and the width is 5"
    ):
        tangent.random_frames(wide, jax.random.key(0), 1)
    with pytest.raises(ValueError, match="3 frames of rank 3"):
        tangent.equal_energy_frames(wide, np.eye(5), jax.random.key(0), 1)
    np.testing.assert_array_equal(others, random_frames(directions, jax.random.key(0), COUNT))
    assert not np.array_equal(others, random_frames(directions, jax.random.key(1), COUNT))


def test_shares_agree_with_float64_whoever_is_left_out_and_however_they_are_turned():
    points, gradient, q = stretched(), stretched(seed=7) ** 3, frame()
    turn = rotation(WIDTH, 5).astype(np.float32)
    for keep in (np.ones(POINTS, np.float32), (np.arange(POINTS) % 3 > 0).astype(np.float32)):
        kept, own = keep > 0, energy(q, gradient, keep)
        np.testing.assert_allclose(own, reference.energy(q, gradient[kept]), rtol=1e-5)
        np.testing.assert_allclose(
            variance_share(q, points, keep), reference.variance_share(q, points[kept]), rtol=1e-5
        )
        np.testing.assert_allclose(
            energy(turn.T @ q, gradient @ turn * np.float32(1e-6), keep), own, rtol=1e-5
        )
    np.testing.assert_allclose(
        variance_share(q, points + np.float32(100)), variance_share(q, points), rtol=1e-3
    )
    for of in (q, np.zeros((WIDTH, 0), np.float32)):
        np.testing.assert_allclose(
            isoscore_outside(of, points * np.float32(1e-6)),
            reference.isoscore_outside(of, points),
            rtol=1e-4,
        )
    whole = read_isoscore(spectrum(points))[0]
    np.testing.assert_allclose(
        isoscore_outside(np.zeros((WIDTH, 0), np.float32), points), whole, rtol=1e-4
    )
    inside = points @ q @ q.T  # in float32: what is left outside is rounding
    assert np.isnan(isoscore_outside(q, inside))
    all_but_one = turn[:, 1:]  # one dimension has no shape
    assert np.isnan(isoscore_outside(all_but_one, points))
    nearly = inside + np.float32(0.01) * (points - inside)
    np.testing.assert_allclose(
        isoscore_outside(q, nearly), reference.isoscore_outside(q, nearly), rtol=1e-2
    )
    assert np.isnan(energy(q, np.zeros_like(points)))
    assert np.isnan(variance_share(q, np.ones_like(points)))
    keep = (np.arange(POINTS) < 3).astype(np.float32)
    close = points[:1] + np.float32(1e-7) * points  # told apart by rounding
    alike = np.where(keep[:, None] > 0, close, points)
    assert np.isnan(variance_share(q, alike, keep))


def test_a_gradient_inside_the_proxy_has_all_its_energy_there_and_an_isotropic_one_its_rank_over_width():
    q, generator = frame(), np.random.default_rng(0)
    inside = (generator.normal(size=(POINTS, RANK)) @ q.T).astype(np.float32)
    np.testing.assert_allclose(energy(q, inside), 1, rtol=1e-5)
    isotropic = generator.normal(size=(100_000, WIDTH)).astype(np.float32)
    assert tangent.energy_share(q, isotropic) == pytest.approx(RANK / WIDTH, rel=0.01)
    points = np.vstack(
        [np.diag(np.arange(1.0, WIDTH + 1)), -np.diag(np.arange(1.0, WIDTH + 1))]
    ).astype(np.float32)
    first = np.eye(WIDTH, dtype=np.float32)[:, :RANK]
    by_hand = RANK / WIDTH - (1 + 4 + 9 + 16) / (WIDTH * (WIDTH + 1) * (2 * WIDTH + 1) / 6)
    excess = energy(first, np.eye(WIDTH, dtype=np.float32)) - variance_share(first, points)
    assert excess == pytest.approx(by_hand, rel=1e-4)


def test_random_frames_in_the_complement_have_the_mean_energy_that_the_proxy_leaves():
    gradient, q = stretched(), frame()
    frames = tangent.random_frames(q, jax.random.key(0), 4000)
    energies = jax.vmap(lambda one: tangent.energy_share(one, gradient))(frames)
    own = float(energy(q, gradient))
    expected = (1 - own) * RANK / (WIDTH - RANK)
    assert energies.mean() == pytest.approx(expected, rel=0.02)
    assert tangent.ratio(own, energies) == pytest.approx(own / expected, rel=0.02)
    few = energies[:COUNT]
    for value in (0.0, float(few[3]), float(np.median(few)), 1.0):  # one of them is a tie
        assert tangent.p_value(value, few) == pytest.approx(
            reference.p_value(value, np.asarray(few))
        )
    assert tangent.p_value(1.0, few) == pytest.approx(1 / 21)
    assert tangent.p_value(0.0, few) == 1
    assert np.isnan(tangent.p_value(np.nan, few))
    assert np.isnan(tangent.p_value(0.5, few.at[0].set(np.nan)))


@pytest.mark.parametrize("kind", ["principal", "random", "last"])
def test_frames_of_equal_energy_have_it(kind):
    gradient = stretched()
    moment = gradient.T @ gradient
    last = np.linalg.eigh(moment)[1][:, 1 : RANK + 1]
    q = {"principal": principal(gradient, RANK), "random": frame(), "last": last}[kind]
    frames = equal_energy_frames(q, moment * np.float32(1e-9), jax.random.key(0), COUNT)
    energies = [energy(np.asarray(one), gradient) for one in frames]
    np.testing.assert_allclose(energies, energy(q, gradient), rtol=1e-3)
    assert np.abs(frames[0] - frames[1]).max() > 0.1


def test_the_local_tangent_is_that_of_float64_and_finds_a_gradient_along_a_circle():
    points, gradient, among = stretched(points=40), stretched(seed=8, points=40), stretched(seed=9)
    local = local_tangent(points, gradient, among, 12, RANK)
    for rank in (1, RANK):
        expected = reference.local_tangent(points, gradient, among, 12, rank)
        for own, values in zip(local[:2], expected, strict=True):
            np.testing.assert_allclose(own[:, rank - 1], values, rtol=1e-3)
    assert local.known_PE.all()
    turn = rotation(WIDTH).astype(np.float32)
    turned = local_tangent(points @ turn, gradient @ turn, among @ turn, 12, RANK)
    np.testing.assert_allclose(turned.inside_PE, local.inside_PE, rtol=1e-3)
    angle, others = np.linspace(0, 6, 40), np.linspace(0, 2 * np.pi, POINTS)
    plane = rotation(WIDTH, 2)[:2]

    def circle(t):
        return (np.stack([np.cos(t), np.sin(t)], 1) @ plane).astype(np.float32)

    along = local_tangent(circle(angle), circle(angle + np.pi / 2), circle(others), 5, 1)
    across = local_tangent(circle(angle), circle(angle), circle(others), 5, 1)
    assert along.inside_PE.min() > 0.98
    assert across.inside_PE.max() < 0.02
    np.testing.assert_allclose(along.share_PE.mean(), 0.5, atol=0.1)
    copies = np.repeat(stretched(points=5), 20, axis=0)
    for neighbors in (12, 13):
        of_none = local_tangent(copies, gradient[:1].repeat(100, 0), copies, neighbors, RANK)
        for values in of_none:
            np.testing.assert_array_equal(values, 0)  # all neighbors are copies
