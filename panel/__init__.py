"""What is measured of a cloud of vectors: families of quantities, their intervals, and null models."""
