"""Every test runs on 8 fake CPU devices even beside an accelerator, rank promotion is an error, shapes are checked and
what is compiled is kept for the next time, as by a user's commands, in a home folder of the tests' own.
"""

import os
import pathlib

os.environ["HOME"] = str(pathlib.Path(__file__).parent.parent / ".cache" / "home")
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["MPLBACKEND"] = "Agg"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's: where tests run side by side, its threads wait for one another

import jax
import pytest
from jaxtyping import install_import_hook

from workdir import compiled

jax.config.update("jax_numpy_rank_promotion", "raise")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
compiled.keep()
install_import_hook(["metrics", "models"], "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_let_go():
    """Every one keeps pages mapped, of which Linux allows 65,530: a process with thousands of programs is killed."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def memory_stays_small():
    """Every program keeps memory too; a process of tests needs 2 GB at most."""
    yield
    if resident() > 1.5e9:
        jax.clear_caches()


def resident() -> float:
    """Bytes of this process in memory; 0 where Linux does not say."""
    path = pathlib.Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0.0
