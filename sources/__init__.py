"""Where clouds come from: the checkpoints of a run, arrays."""
