"""Where clouds come from: the checkpoints of a run, arrays, any function. `measure` is for everybody's vectors."""

from sources.arrays import measure, measuring

__all__ = ["measure", "measuring"]
