"""Compute tangents of pretrained models, with gradients by PyTorch."""
