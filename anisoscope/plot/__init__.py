"""Figures, drawn from tables alone, on axes of one's own; draw.py has those that the command draws."""

from anisoscope.plot.of_table import over_training, profile, scales, spectrum

__all__ = ["over_training", "profile", "scales", "spectrum"]
