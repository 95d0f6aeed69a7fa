"""How much memory there is."""

import os
import pathlib


def available() -> int | None:
    """Bytes for a program on the first device, or on this machine; None where neither says."""
    import jax  # late: what is refused by its size alone is refused at once

    if stats := jax.local_devices()[0].memory_stats():
        return stats.get("bytes_limit")
    return of_machine()


def of_machine() -> int | None:
    """Bytes for a program on this machine, beside any accelerator."""
    sizes = []
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        sizes += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit = pathlib.Path("/sys/fs/cgroup/memory.max")
        sizes += (
            [int(limit.read_text())]
            if limit.exists() and limit.read_text().strip() != "max"
            else []
        )
        sizes = sizes or [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (OSError, ValueError):
        return None
    return min(sizes)


def format_bytes(count: float) -> str:
    for unit, words in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {words}"
    return f"{count / 1e3:.0f} kB"


def is_out(error: Exception) -> bool:
    """Python's and NumPy's, or XLA's, which has no class of its own."""
    return (
        isinstance(error, MemoryError)
        or "RESOURCE_EXHAUSTED" in str(error)
        or "Out of memory" in str(error)
    )
