"""Every test runs on a CPU (`make gpu` has another), on one device or on 8 simulated ones. Rank
promotion is an error, shapes are checked. What is compiled is kept for the next time, as by a
user's commands, in a home folder of the tests' own.
"""

import contextlib
import ctypes
import os
import pathlib

os.environ["HOME"] = str(pathlib.Path(__file__).parent.parent / ".cache" / "home")
# another by benchmarks/accelerator.py
os.environ["JAX_PLATFORMS"] = os.environ.get("ANISOSCOPE_PLATFORM", "cpu")
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=8"
    # half of the compiler's time, in the quick suite
    + " --xla_cpu_use_fusion_emitters=false" * ("JAX_DISABLE_MOST_OPTIMIZATIONS" in os.environ)
)
os.environ["MPLBACKEND"] = "Agg"
# glibc's: with one for every thread, what was freed is never given back
os.environ["MALLOC_ARENA_MAX"] = "2"
# NumPy's: where tests run side by side, its threads wait for one another
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import jax
import matplotlib.pyplot as plt
import pytest
from jaxtyping import install_import_hook

from anisoscope.engine import programs
from anisoscope.utils import compiled, mesh
from anisoscope.utils.compiled import CACHE

jax.config.update("jax_numpy_rank_promotion", "raise")
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
compiled.keep(CACHE)
install_import_hook(["anisoscope.metrics", "anisoscope.models"], "beartype.beartype")


@pytest.fixture(autouse=True, scope="session")
def one_device():
    """A program for 8 devices takes longer to compile, and saves its arrays in eight parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh, "devices", lambda: jax.devices()[:1])
        yield


@pytest.fixture
def eight_devices(monkeypatch):
    """All that are simulated."""
    monkeypatch.setattr(mesh, "devices", jax.devices)


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_let_go():
    """Every one keeps pages mapped, of which Linux allows 65,530: a process with thousands of
    programs is killed.
    """
    yield
    release()


@pytest.fixture(autouse=True)
def figures_are_closed():
    """pyplot keeps each until it is closed, and warns at the 21st."""
    yield
    plt.close("all")


@pytest.fixture(autouse=True)
def memory_stays_small():
    """Every program keeps memory too; a process of tests needs 2 GB at most."""
    yield
    if resident() > 1.5e9:
        release()


@pytest.fixture
def programs_are_shared(monkeypatch):
    """Trainings of equal settings and text use one compiled program, as seeds that are trained
    together do.
    """
    from anisoscope.training import loop, train_program

    def make(config, corpus):
        key = config, corpus.sha256, corpus.train.size, corpus.valid.size, corpus.test.size
        if key not in PROGRAMS:
            if len(PROGRAMS) == 8:
                PROGRAMS.clear()
            PROGRAMS[key] = train_program.make_train_program(config, corpus)
        return PROGRAMS[key]

    monkeypatch.setattr(loop, "make_train_program", make)


PROGRAMS = {}


def release():
    jax.clear_caches()
    programs._futures.clear()
    # glibc alone keeps what was freed, and has this
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def resident() -> float:
    """Bytes of this process in memory; 0 where Linux does not say."""
    path = pathlib.Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else 0.0
