"""Named values: the tables of checkpoints and runs."""
