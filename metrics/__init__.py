"""Pure, un-jitted functions of arrays: one cloud in, a number or a small struct out. No model, no step, no file."""
