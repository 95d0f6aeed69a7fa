"""Programs compiled once: JAX's compilation cache, kept between starts in a folder that is the
user's alone.

What lies there is machine code, run without a question. So the folder is shared neither with other
users nor between kinds of machines. JAX could bound its size only with `filelock`; here that is
done at each start.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import stat
import sys
import warnings

CACHE = "~/.cache/anisoscope"
SWITCH = "ANISOSCOPE_COMPILED"  # an environment variable; off: library calls keep nothing
DIGITS = 16  # of the names of folders
LIMIT = 4 * 2**30  # bytes of all entries, at a start
# of a processor, in /proc/cpuinfo
TRAITS = {"vendor_id", "cpu family", "model", "model name", "stepping", "flags"}
TRAITS |= {
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "Features",
}


def keep(cache: str) -> str:
    """Have JAX keep what it compiles, unless JAX_COMPILATION_CACHE_DIR is set.

    Returns:
        Why that cannot be, or an empty string.
    """
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache", UserWarning
    )
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return ""
    try:
        import jax  # late: settings are checked without waiting for JAX
        import jaxlib

        folder = _own(
            _own(pathlib.Path(cache).expanduser() / "compiled") / _machine(jaxlib.__version__)
        )
        _trim(folder.parent, LIMIT)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ of a user without a home
        return f"compiled programs are not kept: {error}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # of small programs there are hundreds
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    # on a CPU they keep nothing more
    jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    return ""


def keep_for_library() -> None:
    """Keep compiled programs for library calls, unless the user chose a cache or switched it off.

    The first time, a line on stderr names the folder and the switch.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if os.environ.get(SWITCH) == "off" or jax.config.jax_compilation_cache_dir is not None:
        return
    folder = pathlib.Path(CACHE).expanduser() / "compiled"
    first = not folder.exists()
    why = keep(CACHE)
    compilation_cache.reset_cache()  # JAX decides at its first compilation whether there is a cache
    if why or first:
        kept = f"compiled programs are kept in {folder} for the next process"
        print(f"anisoscope: {why or kept}; {SWITCH}=off switches this off", file=sys.stderr)


def _own(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder; OSError unless it is the user's, and nobody else may write there."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        if not folder.is_dir():
            raise NotADirectoryError(0, "a file stands there")
    except OSError as error:
        raise OSError(f"{folder} cannot be made ({error.strerror})") from error
    for status in (folder.lstat(), folder.stat()):  # of a link, and of what it leads to
        if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
            raise OSError(f"{folder} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"others may write to {folder}; chmod go-w changes that")
    return folder


def _machine(jaxlib: str) -> str:
    """Digest what compiled programs depend on; JAX compresses by what Python's version has."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        processor = sorted({line for line in lines if line.partition(":")[0].strip() in TRAITS})
    except OSError:  # no Linux
        processor = [platform.processor(), platform.node()]
    words = [jaxlib, *sys.version_info[:2], platform.system(), platform.machine(), *processor]
    return hashlib.sha256(repr(words).encode()).hexdigest()[:DIGITS]


def _trim(folder: pathlib.Path, limit: int) -> None:
    """Delete what was not used for longest, until `limit` bytes are left."""
    programs = []
    for path in folder.glob(f"{'[0-9a-f]' * DIGITS}/*"):
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
