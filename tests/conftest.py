"""Every test runs on 8 fake CPU devices even beside an accelerator, rank promotion is an error, shapes are checked and
compilations cached.
"""

import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ["MPLBACKEND"] = "Agg"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's: where tests run side by side, its threads wait for one another

import jax
import pytest
from jaxtyping import install_import_hook

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(pathlib.Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
install_import_hook(["metrics", "models"], "beartype.beartype")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_let_go():
    """Every one keeps pages mapped, of which Linux allows 65,530: a process with thousands of programs is killed."""
    yield
    jax.clear_caches()
