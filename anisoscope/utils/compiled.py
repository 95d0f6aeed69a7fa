"""JAX's compilation cache, kept between processes in a private folder of the user.

The cache holds machine code, so that each kind of machine has a folder of its own. Its size is
bounded here at each start; JAX would need `filelock` for that.
"""

import contextlib
import functools
import hashlib
import logging
import os
import pathlib
import platform
import sys
import warnings

CACHE = "~/.cache/anisoscope"
SWITCH = "ANISOSCOPE_COMPILED"  # an environment variable; off: no cache for library calls
LIMIT = 4 * 2**30  # bytes of all entries at a start
# beginnings of lines of /proc/cpuinfo that identify a processor
TRAITS = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")


def keep(cache: str) -> str:
    """Enable JAX's compilation cache; return why it is unavailable, or an empty string."""
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache", UserWarning
    )
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return ""
    try:
        import jax  # late: settings are checked without waiting for JAX
        import jaxlib

        folder = pathlib.Path(cache).expanduser() / "compiled" / _machine(jaxlib.__version__)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _trim(folder.parent, LIMIT)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ for a user without a home
        return f"compiled programs are not kept: {error}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # there are hundreds of small programs
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # XLA's own caches add nothing on a CPU
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    return ""


@functools.cache  # once for a process
def keep_for_library() -> None:
    """Enable the compilation cache for library calls, unless the user chose a cache or none."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    off = os.environ.get(SWITCH, "").lower() in ("off", "0", "false")
    enabled = jax.config.jax_enable_compilation_cache
    if off or not enabled or jax.config.jax_compilation_cache_dir is not None:
        return
    folder = pathlib.Path(CACHE).expanduser() / "compiled"
    first = not folder.exists()
    why = keep(CACHE)
    compilation_cache.reset_cache()  # JAX decides at its first compilation whether there is a cache
    if why or first:
        line = why or f"keeps compiled programs in {folder} for the next process"
        logger = logging.getLogger("anisoscope")
        logger.warning("Anisoscope: %s; %s=off switches this off", line, SWITCH)


def _machine(jaxlib: str) -> str:
    """Digest everything that compiled programs depend on, Python's version included."""
    processor = [platform.processor(), platform.node()]
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():  # Linux
        lines = cpuinfo.read_text().splitlines()
        processor = sorted({line for line in lines if line.startswith(TRAITS)})
    facts = [jaxlib, *sys.version_info[:2], platform.system(), platform.machine(), *processor]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _trim(folder: pathlib.Path, limit: int) -> None:
    """Delete the least recently used programs until `limit` bytes are left."""
    programs = []
    for path in folder.glob(f"{'[0-9a-f]' * 16}/*"):
        with contextlib.suppress(OSError):  # deleted by another process
            status = path.stat()
            programs.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    size = sum(size for _, size, _ in programs)
    for _, freed, path in sorted(programs):
        if size <= limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        size -= freed
