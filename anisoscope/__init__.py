"""The geometry of transformer representations, with intervals and null models.

anisoscope.metrics.twonn(x)                        a number from a matrix
anisoscope.measure(x, clusters=sentence_of_each)   a table with intervals and null models
anisoscope.measure_points(x)                       a number for each point: norm, cosine, dimension
anisoscope.compare(x, y, clusters)                 every layer of a model with every layer of another
anisoscope.measure_attention(q, k, mask="causal")  a table of queries, keys and attention
anisoscope.measure_model("gpt2", texts)            a table of a pretrained model
anisoscope.make_measure(f, keys)                   a jitted function that measures a JAX function
anisoscope.compare_models("gpt2", "gpt2-medium", texts)  layers of two pretrained models
anisoscope.record(model, ["blocks.0"], to="a.nc")     a sample of activations while your own loop runs
anisoscope.measure_step(recorder, step, folder)        a table for each step of your training
anisoscope.open_run("runs/quickstart/decoder")     a trained run
anisoscope.to_frame(table)                         a pandas DataFrame
anisoscope.to_text(table)                          lines that fit a terminal
anisoscope.report(table, "page.html")              a page for a browser
anisoscope.plot.by_layer(table)                     a figure on Matplotlib axes
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from anisoscope.utils import forked  # noqa: F401 it watches forks from now on

if TYPE_CHECKING:
    from anisoscope import metrics, models, plot
    from anisoscope.api import compare_models, measure_model, open_run, trainer_callback
    from anisoscope.plot.report import report
    from anisoscope.results.frame import to_frame
    from anisoscope.results.text_table import to_text
    from anisoscope.sources.arrays import make_measure, measure, measure_attention
    from anisoscope.sources.point_table import measure_points
    from anisoscope.sources.recording.measure_step import measure_step
    from anisoscope.sources.recording.recorder import record
    from anisoscope.sources.two_arrays import compare

__version__ = "0.14.0"
__all__ = [
    "compare",
    "compare_models",
    "make_measure",
    "measure",
    "measure_attention",
    "measure_model",
    "measure_points",
    "measure_step",
    "metrics",
    "models",
    "open_run",
    "plot",
    "record",
    "report",
    "to_frame",
    "to_text",
    "trainer_callback",
]
SUBPACKAGES = ("metrics", "models", "plot")
MODULES = {  # public name: its module; names not listed are in api.py
    "compare": "sources.two_arrays",
    **dict.fromkeys(("make_measure", "measure", "measure_attention"), "sources.arrays"),
    "record": "sources.recording.recorder",
    "report": "plot.report",
    "to_frame": "results.frame",
    "to_text": "results.text_table",
    "measure_points": "sources.point_table",
    "measure_step": "sources.recording.measure_step",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is used, so that the command checks its input before JAX loads."""
    if name in SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.{MODULES.get(name, 'api')}"), name)
    here = sys.modules[__name__]  # with it Python says which name was meant
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=here)


def __dir__() -> list[str]:
    return __all__
