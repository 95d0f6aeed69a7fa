"""Where clouds come from: the checkpoints of a run, arrays, any function. `measure` is for everybody's vectors."""

from sources.arrays import measure, measuring
from sources.run import open_run

__all__ = ["measure", "measuring", "open_run"]
