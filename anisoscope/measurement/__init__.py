"""Measure clouds of vectors: families of quantities, intervals and null models."""
