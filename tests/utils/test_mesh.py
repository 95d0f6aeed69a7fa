"""What a separate process uses as devices: the process of the tests has simulated ones."""

import os
import pathlib
import subprocess
import sys

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
