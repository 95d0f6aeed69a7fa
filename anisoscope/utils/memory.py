"""Measure the available memory, and recognize errors from lack of memory."""

import os
import pathlib


def available() -> int | None:
    """Return the bytes available on the first device, else on this machine; None if unknown."""
    import jax  # late: checks that need only the machine's memory are immediate

    if stats := jax.local_devices()[0].memory_stats():
        return stats.get("bytes_limit")
    return machine_memory()


def machine_memory() -> int | None:
    """Return the bytes of main memory available to a program; None if unknown."""
    try:
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        sizes = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit = pathlib.Path("/sys/fs/cgroup/memory.max")
        if limit.exists() and (text := limit.read_text().strip()) != "max":
            sizes.append(int(text))
        return min(sizes or [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")])
    except (OSError, ValueError):
        return None


def format_bytes(count: float) -> str:
    """Write a number of bytes with its unit."""
    for unit, words in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:,.1f} {words}"
    return f"{count / 1e3:.0f} kB"


def is_out(error: Exception) -> bool:
    """Return whether an error means that memory is full, in Python or XLA (which has no class)."""
    words = ("RESOURCE_EXHAUSTED", "Out of memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)
