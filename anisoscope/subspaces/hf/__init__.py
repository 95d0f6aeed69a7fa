"""Tangents of pretrained models: gradients by PyTorch."""
