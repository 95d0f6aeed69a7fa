"""JAX's compilation cache, kept between processes in a private folder of the user.

The command sets it for its process. A call of the library sets it while it runs, and then restores
JAX's settings: the user's own programs are compiled and kept as if the library were not there.

The cache holds machine code, so that each kind of machine has a folder of its own. Its size is
bounded here at each start; JAX would need `filelock` for that.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import platform
import sys
import threading
import warnings
from typing import Any

from anisoscope.utils import forked

CACHE = "~/.cache/anisoscope"
SWITCH = "ANISOSCOPE_COMPILED"  # an environment variable; off: no cache for library calls
LIMIT = 4 * 2**30  # bytes of all entries at a start
# beginnings of lines of /proc/cpuinfo that identify a processor
TRAITS = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")


def keep(cache: str) -> str:
    """Keep all programs of this process from now on; return why not, or an empty string."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return ""
    folder, why = _make_folder(cache)
    if not why:
        _set_options(_options(folder))
    return why


class LibraryPrograms:
    """A context in which compiled programs are kept, unless the user chose a cache or none.

    JAX has these options for a process alone, not for a program or a thread. Programs that other
    threads compile during a call are kept too.
    """

    def __init__(self) -> None:
        self._lock, self._open = threading.Lock(), 0
        self._before: dict[str, Any] = {}  # JAX's options outside of all calls

    def __enter__(self) -> None:
        import jax  # late: settings are checked without waiting for JAX

        forked.check_forked()
        with self._lock:
            self._open += 1
            chosen = jax.config.jax_compilation_cache_dir is not None
            if self._open > 1 or chosen or not jax.config.jax_enable_compilation_cache:
                return
            folder, why = library_folder()
            if not why:
                options = _options(folder)
                self._before = {name: getattr(jax.config, name) for name in options}
                _set_options(options)

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._open -= 1
            if self._before and not self._open:
                _set_options(self._before)
                self._before = {}


library_programs = LibraryPrograms()


@functools.cache  # once for a process
def library_folder() -> tuple[str, str]:
    """Return where calls of the library keep programs, and why they do not, or an empty string."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "false"):
        return "", f"{SWITCH} is off"
    return _make_folder(CACHE)


def _make_folder(cache: str) -> tuple[str, str]:
    """Create the folder of this kind of machine; return it, and why there is none.

    A program that another process is writing is compiled anew, without JAX's warning: of all that
    this module sets, only that filter outlasts a call of the library.
    """
    warnings.filterwarnings(
        "ignore", "Error (reading|writing) persistent compilation cache", UserWarning
    )
    try:
        import jaxlib

        folder = pathlib.Path(cache).expanduser() / "compiled" / _machine(jaxlib.__version__)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _trim(folder.parent, LIMIT)
    except (OSError, RuntimeError) as error:  # RuntimeError: ~ for a user without a home
        return "", f"compiled programs are not kept: {error}"
    return str(folder), ""


def _options(folder: str) -> dict[str, Any]:
    return {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0,  # there are hundreds of small programs
        "jax_persistent_cache_enable_xla_caches": "none",  # XLA's own add nothing on a CPU
    }


def _set_options(options: dict[str, Any]) -> None:
    """Set JAX's options; without the reset it would look for a cache once in a process."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


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
