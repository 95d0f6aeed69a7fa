"""What the benchmark of the metrics times is the product's, and its memory is that of the compiled search."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks import metrics
from benchmarks.peers import peer


@pytest.mark.slow  # nothing of the product rests on it
def test_the_tasks_compute():
    cloud_PD = jnp.asarray(peer.normal(200, 6))
    assert float(jax.jit(metrics.search)(cloud_PD)) == pytest.approx(6, rel=0.3)
    values = jax.jit(metrics.spectrum)(cloud_PD)
    assert {"anisotropy", "effective_rank", "alpha_req"} <= values.keys()
    assert metrics.product(cloud_PD).shape == (200, 200)


def test_extra_memory_is_less_than_that_of_all_distances():
    """A few copies of the cloud and blocks of distances, in megabytes."""
    points = 4096
    assert 4 * points * 8 / 1e6 < metrics.extra_memory(points, 8) < 4 * points**2 / 1e6 / 2
