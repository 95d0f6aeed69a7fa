"""Pretrained models as a source: weights that others trained, through the same panel. Only this
room imports torch.
"""
