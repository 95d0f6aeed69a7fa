"""The geometry of transformer representations: anisotropy, dimension and drift, with intervals and null models.

import anisoscope

anisoscope.metrics.twonn(x)                      # a number of a matrix
anisoscope.measure(x, clusters=sentence_of_each) # tables with intervals and null models
anisoscope.measure_attention(q, k, mask="causal")
anisoscope.measure_model("gpt2", texts)
anisoscope.open_run("runs/quickstart/decoder")
anisoscope.plot.profile(table)
"""

import importlib
from typing import TYPE_CHECKING, Any

from anisoscope import metrics
from anisoscope.measurement.api import (
    measure,
    measure_attention,
    measure_function,
    measure_model,
    open_run,
)

if TYPE_CHECKING:
    from anisoscope import models, plot

__version__ = "0.2.0"
__all__ = [
    "measure",
    "measure_attention",
    "measure_function",
    "measure_model",
    "metrics",
    "models",
    "open_run",
    "plot",
]


def __getattr__(name: str) -> Any:
    """`models` needs flax and `plot` Matplotlib: both are imported when they are asked for."""
    if name not in ("models", "plot"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
