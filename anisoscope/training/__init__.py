"""One loop for every experiment: objectives, optimizer, step, checkpoints."""
