"""Where metrics are composed over layers, heads and checkpoints, and become labelled tables."""
