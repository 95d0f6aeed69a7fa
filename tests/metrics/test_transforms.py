"""A metric is a function of JAX: the same under vmap, in a map, without being compiled, and of
bfloat16.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import scale
from anisoscope.metrics.comparison import linear_cka, nearest, neighbourhood_overlap
from anisoscope.metrics.copies import copies
from anisoscope.metrics.neighbours import nearest_neighbours
from anisoscope.metrics.similarity import log_partition_isotropy
from anisoscope.metrics.spectrum import spectrum
from tests.metrics import (
    test_attention,
    test_copies,
    test_dimension,
    test_outliers,
    test_scale,
    test_similarity,
)
from tests.metrics import test_spectrum as spectral
from tests.metrics.clouds import (
    ALL,
    FEW,
    MANY,
    crowded,
    filled,
    find,
    gaussian,
    stacked,
    with_copies,
)

SLOW = pytest.mark.slow
CLOUDS = [gaussian(60, 13, seed) + 1 for seed in range(3)]
# than the neighbours that are searched
FEWER = [with_copies(gaussian(31, 5, seed)) for seed in range(3)]
HEADS = [
    (*test_attention.heads(seed), test_attention.CAUSAL, np.float32([1, 0, 1, 1]))
    for seed in range(3)
]
ALIKE = ("crowds", "none", "equal, or nearly")
PLAIN = with_copies(gaussian(65, 9))
# all of these is compared with all
CROWDS = [PLAIN, crowded(gaussian(2, 9), len(PLAIN), apart=1e-4)[: len(PLAIN)]]


def of_nearest(count):
    return lambda cloud_PD: nearest_neighbours(cloud_PD, count)


def searched(clouds, count):
    return [(find(cloud, count),) for cloud in clouds]


def near():
    of_each = [nearest(find(filled(cloud), MANY), 5) for cloud in CLOUDS]
    return [(one, of_each[0]) for one in of_each]


CASES = {  # a function, what it is asked of each time, and how near its values are
    "attention": (test_attention.of_head, lambda: HEADS, 1e-5),
    "copies": (
        copies,
        lambda: [(test_copies.shuffled(test_copies.ALIKE[name]),) for name in ALIKE],
        0,
    ),
    "few neighbours": (of_nearest(FEW), lambda: [(cloud,) for cloud in CROWDS], 1e-6),
    "many neighbours": (of_nearest(MANY), lambda: [(cloud,) for cloud in CROWDS], 1e-6),
    "linear CKA": (
        lambda x, y: linear_cka(x, y, 3),
        lambda: [(cloud, CLOUDS[0]) for cloud in CLOUDS],
        1e-5,
    ),
    "overlap": (neighbourhood_overlap, near, 1e-6),
    "dimension": (test_dimension.readings, lambda: searched(FEWER, FEW), 1e-5),
    "scale": (test_scale.readings, lambda: searched(FEWER, ALL), 1e-5),
    "decimation": (scale.decimation, lambda: [(cloud, find(cloud, FEW)) for cloud in FEWER], 1e-5),
    "outliers": (test_outliers.everything, lambda: [(cloud,) for cloud in CLOUDS], 1e-5),
    "similarity": (test_similarity.everything, lambda: [(cloud,) for cloud in CLOUDS], 1e-5),
    "partition": (
        lambda cloud: log_partition_isotropy(cloud, 3),
        lambda: [(cloud,) for cloud in CLOUDS],
        1e-5,
    ),
    "spectrum": (
        lambda x: spectral.readings(spectrum(x, 4)),
        lambda: [(cloud,) for cloud in CLOUDS],
        1e-4,
    ),
}


def but(*quick):
    return [pytest.param(name, marks=() if name in quick else SLOW) for name in CASES]


@pytest.mark.parametrize("name", but("attention", "few neighbours", "overlap", "scale"))
def test_many_at_once_are_as_one_after_another(name):
    of, calls, rtol = CASES[name]
    one_by_one = [jax.jit(of)(*call) for call in calls()]
    at_once = jax.jit(jax.vmap(of))(*stacked(calls()))
    jax.tree.map(
        lambda all, *ones: np.testing.assert_allclose(all, ones, rtol=rtol), at_once, *one_by_one
    )


@pytest.mark.parametrize("name", ["many neighbours", "linear CKA", "similarity", "spectrum"])
def test_a_cloud_in_bfloat16_is_read_in_float32(name):
    of, calls, rtol = CASES[name]
    rough = [jnp.asarray(cloud, jnp.bfloat16) for cloud in calls()[0]]
    found, expected = (
        jax.jit(of)(*clouds) for clouds in (rough, [cloud.astype(jnp.float32) for cloud in rough])
    )
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol), found, expected)
