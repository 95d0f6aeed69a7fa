"""What a process of its own takes for devices: the tests' has simulated ones."""

import os
import pathlib
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

from anisoscope.utils import mesh

ROOT = pathlib.Path(__file__).parent.parent.parent
TAKE = """
import os
import jax
from anisoscope.utils import mesh
mesh.take_cores_for_devices(2)
print(len(jax.devices()), len(mesh.devices()), os.environ["XLA_FLAGS"])
"""


def test_cores_are_devices_that_wait_for_one_another_and_flags_of_a_user_stay():
    user = "--xla_cpu_enable_fast_math=false"
    command, environment = (
        [sys.executable, "-c", TAKE],
        os.environ | {"XLA_FLAGS": user, "JAX_PLATFORMS": "cpu"},
    )
    said = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    assert said == [str(min(2, len(os.sched_getaffinity(0)))), "1", mesh.PATIENT, user]


def test_work_is_shared_out_to_threads_in_order_and_its_error_is_raised():
    at_once = min(2, mesh.cores())
    together = threading.Barrier(at_once, timeout=60)  # passed only by as many threads at once

    def work(number: int, given: dict) -> jax.Array:
        together.wait()
        return given["x"] + number

    done = mesh.map_over_devices(work, {"x": np.arange(3)}, 2)
    assert [type(one) for one in done] == [np.ndarray] * 2
    np.testing.assert_array_equal(done, [[0, 1, 2], [1, 2, 3]])
    with pytest.raises(KeyError, match="of 1"):
        mesh.map_over_devices(
            lambda number, given: given["x"] if number == 0 else given[f"of {number}"], {"x": 0}, 2
        )
