"""Pure, un-jitted functions of arrays: one cloud in, a number or a small struct out. Imports only jax."""
