"""Test at every checkpoint whether directions fitted to activations carry the gradient."""
