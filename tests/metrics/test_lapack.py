"""The threads of LAPACK: few while something is measured, and as many as before afterwards."""

import os
import re

import jax
import numpy as np
import pytest

import anisoscope
from anisoscope import metrics
from anisoscope.metrics import eigen, lapack, neighborhoods
from anisoscope.metrics.neighbors import nearest_neighbors

X = np.random.default_rng(0).standard_normal((40, 3)).astype(np.float32)


@pytest.fixture
def threads():
    """Reads the number, which is 3 before the test."""
    number = lapack._number()
    if number is None:
        pytest.skip("SciPy has another LAPACK than OpenBLAS")
    get, put = number
    before = get()
    put(3)
    yield get
    put(before)


def test_small_matrices_have_one_thread_and_what_was_before_comes_back(threads, monkeypatch):
    monkeypatch.setattr(lapack, "idle_cores", lambda: 8)
    with lapack.threads_for(lapack.MANY_ROWS):
        assert threads() == 3
        with lapack.threads_for(8):
            assert threads() == 1
        assert threads() == 3
    with pytest.raises(KeyError), lapack.threads_for(8):
        raise KeyError
    assert threads() == 3


def seen_by(measured, monkeypatch, threads):
    """The numbers of threads at which JAX begins to wait for a program."""
    seen = []
    for name in ("device_get", "block_until_ready"):
        wait = getattr(jax, name)
        monkeypatch.setattr(jax, name, lambda x, wait=wait: (seen.append(threads()), wait(x))[1])
    measured()
    return seen


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU decomposes by cuSOLVER")
@pytest.mark.parametrize(
    "measured",
    [
        lambda: anisoscope.measure(X, families="spectrum", folds=1),
        lambda: metrics.anisotropy(X),
    ],
    ids=["measure", "metrics"],
)
def test_whatever_decomposes_in_a_users_process_has_one_thread(measured, monkeypatch, threads):
    assert 1 in seen_by(measured, monkeypatch, threads)
    assert threads() == 3


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a GPU decomposes by cuSOLVER")
@pytest.mark.parametrize(
    "decomposed",
    [
        lambda x_PD: eigen.eigen(x_PD),
        lambda x_PD: neighborhoods.local_isotropy(x_PD, nearest_neighbors(x_PD, 20)),
    ],
    ids=["eigen", "local_isotropy"],
)
def test_with_few_threads_no_batch_is_decomposed_at_once(decomposed, monkeypatch):
    """Batches that wait for each other's threads would never end."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    program = jax.jit(jax.vmap(decomposed)).lower(np.stack([X, X + 1])).as_text()
    calls = [line for line in program.splitlines() if "@lapack_" in line]
    assert calls
    assert not [line for line in calls if re.search(r"tensor<\d+x\d+x\d+xf32>", line)]
