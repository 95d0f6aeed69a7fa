"""The least keys of each row, beside NumPy's sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics.selection import least, ordered

ROWS = 5


EVERY_BIT = np.uint32(0xFFFFFFFF).view(np.float32)
KINDS = {  # of squared distances, from even ones and their places
    "even": lambda even, place: even,
    "skewed": lambda even, place: np.exp(30 * even - 20),
    "one far": lambda even, place: np.where(place == 3, 1e30, even),
    "some at zero": lambda even, place: np.where(even < 0.3, 0, even),
    "below zero": lambda even, place: even - 0.5,
    "ties": lambda even, place: np.round(10 * even),
    "few finite": lambda even, place: np.where(place < 4, even, np.inf),
    "not a number": lambda even, place: np.where(place % 2, even, np.nan),
    "not a number, every bit set": lambda even, place: np.where(place % 2, even, EVERY_BIT),
    "equal": lambda even, place: np.ones_like(even),
    "infinite": lambda even, place: np.full_like(even, np.inf),
}


def squares(name, count):
    even_PA = np.random.default_rng(0).random((count, ROWS)).astype(np.float32)
    return KINDS[name](even_PA, np.arange(count)[:, None]).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("count", "kept"), [(700, 134), (33, 12), (1, 4)])
def test_keeps_the_least_and_a_bound_of_the_rest(name, count, kept):
    square_PA = squares(name, count)
    least_keys = jax.jit(least, static_argnums=1)(ordered(jnp.asarray(square_PA)), kept)
    place_AC, beyond_A = jax.tree.map(np.asarray, least_keys)
    assert place_AC.shape == (ROWS, min(kept, count))
    clipped_PA = np.maximum(square_PA, 0)
    for place_C, beyond, square_P in zip(place_AC, beyond_A, clipped_PA.T, strict=True):
        kept_C = place_C[place_C < count]
        finite = np.flatnonzero(square_P < np.inf)
        assert len(set(kept_C)) == len(kept_C)
        assert set(kept_C) <= set(finite)
        rest_P = square_P[np.setdiff1d(finite, kept_C)]
        if rest_P.size == 0:
            assert beyond == np.inf
            continue
        farthest = square_P[kept_C].max(initial=0)
        assert farthest * (1 - 2**-12) <= beyond <= rest_P.min()  # the lowest bits say which it is
        ties = (square_P == rest_P.min()).sum()  # all of them or none
        assert len(kept_C) == kept or len(kept_C) + ties > kept + max(kept // 8, 8)


def test_places_come_in_nearly_the_order_of_their_keys():
    square_PA = squares("skewed", 700)
    place_AC, _ = least(ordered(jnp.asarray(square_PA)), 40)
    kept_AC = np.take_along_axis(square_PA.T, np.asarray(place_AC), axis=1)
    assert (kept_AC[:, 1:] >= kept_AC[:, :-1] * (1 - 2**-16)).all()
    np.testing.assert_allclose(kept_AC, np.sort(square_PA.T, axis=1)[:, :40], rtol=2**-16)
