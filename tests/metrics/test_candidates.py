"""The least numbers of each column, beside NumPy's sort."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics.candidates import least

COLUMNS = 5
KINDS = {  # of squared distances, from even ones and their places
    "even": lambda even, place: even,
    "skewed": lambda even, place: np.exp(30 * even - 20),
    "one far": lambda even, place: np.where(place == 3, 1e30, even),
    "some at zero": lambda even, place: np.where(even < 0.3, 0, even),
    "below zero": lambda even, place: even - 0.5,
    "ties": lambda even, place: np.round(10 * even),
    "few finite": lambda even, place: np.where(place < 4, even, np.inf),
    "not a number": lambda even, place: np.where(place % 2, even, np.nan),
    "equal": lambda even, place: np.ones_like(even),
    "infinite": lambda even, place: np.full_like(even, np.inf),
}


@pytest.mark.parametrize(("count", "kept"), [(700, 134), (33, 12), (1, 1)])
def test_keeps_the_least_and_a_bound_of_the_rest(count, kept):
    find = jax.jit(lambda near_PA: least(near_PA, kept))
    even_PA = np.random.default_rng(0).random((count, COLUMNS)).astype(np.float32)
    for name, kind in KINDS.items():
        near_PA = np.float32(kind(even_PA, np.arange(count)[:, None]))
        place_AC, beyond_A = map(np.asarray, find(jnp.asarray(near_PA)))
        near_PA = np.where(near_PA < np.inf, np.maximum(near_PA, 0), np.inf)
        for place_C, beyond, near_P in zip(place_AC, beyond_A, near_PA.T, strict=True):
            kept_C, finite = place_C[place_C < count], np.flatnonzero(near_P < np.inf)
            assert len(set(kept_C)) == len(kept_C), name
            assert set(kept_C) <= set(finite), name
            rest_P = near_P[np.setdiff1d(finite, kept_C)]
            if rest_P.size == 0:
                assert beyond == np.inf, name
                continue
            assert near_P[kept_C].max(initial=0) <= beyond <= rest_P.min(), name
            assert len(kept_C) == kept, name
