import numpy as np
import pytest

from anisoscope.results.kept_vectors import common_axes

STEPS, POINTS, K = 5, 40, 8


def cloud(seed=0, width=K):
    """Queries and keys (step, kind, vector, K) that drift apart from 0 in opposite directions."""
    rng = np.random.default_rng(seed)
    drift = np.multiply.outer(np.arange(STEPS), np.array([1.0, -0.8]))[
        :, :, None, None
    ] * rng.normal(size=width)
    return (drift + rng.normal(size=(STEPS, 2, POINTS, width))).astype(np.float32)


def rotation(width=K):
    return np.linalg.qr(np.random.default_rng(1).normal(size=(width, width)))[0]


@pytest.mark.parametrize("signs", [(1, 1), (-1, 1), (1, -1)])
def test_vectors_on_a_plane_come_back_with_queries_right_of_and_above_0(signs):
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(STEPS, 2, POINTS, 2)) * [1.0, 0.2] + [2.0, 0.0]
    # on their own axes, x before y
    plane = plane.reshape(-1, 2) @ np.linalg.svd(plane.reshape(-1, 2))[2].T
    plane = plane.reshape(STEPS, 2, POINTS, 2)
    plane = plane * np.sign(plane[:, 0].mean((0, 1)))
    found = common_axes((plane * signs) @ rotation()[:2])
    np.testing.assert_allclose(found.projection, plane, atol=1e-12)
    squares = np.square(plane).sum((0, 1, 2))
    np.testing.assert_allclose(found.share, squares / squares.sum())
    np.testing.assert_allclose(found.kept, 1)


def test_the_axes_keep_the_origin_and_the_largest_share():
    vectors = cloud().astype(np.float64)
    found = common_axes(vectors)
    moment = vectors.reshape(-1, K).T @ vectors.reshape(-1, K)  # about 0
    eigenvalues = np.linalg.eigvalsh(moment)[::-1]
    np.testing.assert_allclose(found.share, eigenvalues[:2] / eigenvalues.sum())
    products = found.projection.reshape(-1, 2).T @ found.projection.reshape(-1, 2)
    np.testing.assert_allclose(products, np.diag(eigenvalues[:2]), atol=1e-9 * eigenvalues[0])
    squares, kept = (np.square(x).sum((1, 2, 3)) for x in (vectors, found.projection))
    np.testing.assert_allclose(found.kept, kept / squares)
    np.testing.assert_allclose((found.kept * squares).sum() / squares.sum(), found.share.sum())
    # linear: 0 stays 0
    np.testing.assert_allclose(common_axes(3 * vectors).projection, 3 * found.projection)


@pytest.mark.parametrize("spoil", [np.nan, np.inf])
def test_a_diverged_checkpoint_is_nan_and_leaves_the_others_alone(spoil):
    vectors = cloud()
    whole = common_axes(vectors[:-1])
    vectors[-1] = spoil
    found = common_axes(vectors)
    assert np.isnan(found.projection[-1]).all()
    assert np.isnan(found.kept[-1]).all()
    np.testing.assert_allclose(found.projection[:-1], whole.projection)
    np.testing.assert_allclose(found.share, whole.share)


def test_degenerate_clouds():
    for vectors in (np.zeros((2, 2, 3, K)), np.full((2, 2, 3, K), np.nan)):
        found = common_axes(vectors)
        assert np.isnan(found.share).all()
        assert np.isnan(found.kept).all()
    line = common_axes(cloud(width=1))
    np.testing.assert_array_equal(line.share, [1, 0])
    np.testing.assert_array_equal(line.projection[..., 1], 0)
    assert line.projection[:, 0, :, 0].mean() > 0
