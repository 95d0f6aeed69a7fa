"""The threads of LAPACK and of XLA while JAX decomposes on a CPU.

JAX takes LAPACK from SciPy's OpenBLAS, whose threads wait busily for one another: beside XLA's own
they take up to twenty times as long as one thread would. Two things are done about that, and
nothing else here changes the process: while something is measured, the number of OpenBLAS's threads
is set, and restored at the end; where XLA has few threads, batches are decomposed in turn.
"""

import contextlib
import ctypes
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Iterator

import jax

FEW_THREADS = 8  # threads; with fewer the matrices of a batch are decomposed one after another
MANY_ROWS = (
    2048  # rows from which the decomposition of a single matrix is faster with several threads
)

_lock = threading.Lock()
_open: list[int] = []  # threads that each open context requests
_before = 0  # number of threads before the first context


@contextlib.contextmanager
def threads_for(rows: int = 0) -> Iterator[None]:
    """Use one thread for matrices of fewer than MANY_ROWS rows, otherwise one for each idle core.

    The number is set for the process: of several open contexts, the smallest counts. It is restored
    at the end.
    """
    global _before
    number = _number()
    if number is None:
        yield
        return
    get, put = number
    with _lock:
        if not _open:
            _before = get()
        threads = 1 if rows < MANY_ROWS else min(_before, idle_cores())
        _open.append(threads)
        put(min(_open))
    try:
        yield
    finally:
        with _lock:
            _open.remove(threads)
            put(min(_open, default=_before))


def make_sequential(decompose: Callable) -> Callable:
    """Let `decompose`, of one matrix, take a batch's matrices in turn where XLA has few threads.

    jaxlib gives a batch to XLA's threads, and one of them waits for the others. A program with as
    many batches at once as threads never ends: with 2 threads, a dozen batches hung within a
    minute. The function that is returned has no derivative in reverse mode.
    """
    few = jax.default_backend() == "cpu" and (os.cpu_count() or 1) < FEW_THREADS
    return jax.custom_batching.sequential_vmap(decompose) if few else decompose


def idle_cores() -> int:
    """Count the cores that only the caller runs on now; 1 where the system does not report it."""
    try:
        running = pathlib.Path("/proc/loadavg").read_text().split()[3].partition("/")[0]
        return max((os.cpu_count() or 1) + 1 - max(int(running), 1), 1)
    except (OSError, IndexError, ValueError):
        return 1


@functools.cache
def _number() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Return functions that read and set the number; None where SciPy has another LAPACK."""
    # late: JAX loads it too, at the first decomposition
    import scipy.linalg.cython_lapack as lapack

    library = ctypes.CDLL(lapack.__file__)
    for prefix in ("scipy_openblas", "openblas"):  # in wheels; in distributions
        if put := getattr(library, f"{prefix}_set_num_threads", None):
            return getattr(library, f"{prefix}_get_num_threads"), put
    return None
