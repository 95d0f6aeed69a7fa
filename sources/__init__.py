"""Where clouds come from: the checkpoints of a run, arrays, any function. `measure` is for everybody's vectors."""

import importlib
from typing import Any

PUBLIC = {"measure": "sources.arrays", "measuring": "sources.arrays", "open_run": "sources.run"}
__all__ = list(PUBLIC)


def __getattr__(name: str) -> Any:
    """Imported when asked for: main.py refuses bad input before xarray and SciPy are loaded."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(PUBLIC[name]), name)
