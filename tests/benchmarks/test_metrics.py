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


def test_growth_is_told_by_shape(monkeypatch, capsys):
    seconds = {"ours": {"TwoNN 8 2": [0.002], "product 8 2": [0.001]}}
    monkeypatch.setattr(metrics, "alternate", lambda commands, rounds: ({}, seconds))
    metrics.growth([(8, 2)], 1)
    assert "| 8 | 2 | 2 (2-2) | 1 (1-1) | 2.00 (2.00-2.00) |" in capsys.readouterr().out


def test_two_kinds_of_device_have_no_ratio(monkeypatch, capsys):
    tasks = {f"{name} 8 2": [0.002] for name in ("TwoNN", "spectrum", "steep", "product")}
    facts = {"ours": {"version": "jax", "kind": "cpu"}, "PyTorch": {"version": "torch", "kind": "gpu"}}
    seconds = {"ours": tasks, "PyTorch": {"TwoNN": [0.001]}}
    monkeypatch.setattr(metrics, "alternate", lambda commands, rounds: (facts, seconds | {"ours": dict(tasks)}))
    metrics.side_by_side(8, 2, {"PyTorch": ("python", "script")}, 1)
    assert "| TwoNN | PyTorch | 1 (1-1) | no ratio: it ran on gpu |" in capsys.readouterr().out
    facts["ours"]["kind"] = "gpu"
    metrics.side_by_side(8, 2, {"PyTorch": ("python", "script")}, 1)
    assert "| TwoNN | PyTorch | 1 (1-1) | 2.00 (2.00-2.00) |" in capsys.readouterr().out
