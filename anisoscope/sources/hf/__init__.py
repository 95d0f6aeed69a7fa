"""Measure pretrained models with the same panel; only this folder imports torch."""
