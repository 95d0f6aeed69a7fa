"""Train models: objectives, optimizers, the step, the loop, and checkpoints."""
