"""Values with names: the tables of checkpoints and runs."""
