"""Recognize a process that was forked after JAX had started, in which JAX waits forever."""

import os
import sys

_forked = False


def _mark() -> None:
    """Remember in a new child whether JAX's threads, which a fork does not copy, had started."""
    global _forked
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", bool)
    _forked = _forked or started()


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(after_in_child=_mark)


def check_forked() -> None:
    """Raise RuntimeError where nothing that JAX computes would end."""
    if _forked:
        raise RuntimeError(
            "Anisoscope: this process was forked after JAX had started, and JAX would hang in it; "
            "start it by spawn (multiprocessing_context='spawn' of a DataLoader), or measure in "
            "the parent"
        )
