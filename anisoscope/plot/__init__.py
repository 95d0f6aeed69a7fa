"""Figures, drawn from tables alone: `profile` on axes of one's own; draw.py has those that the command draws."""

from anisoscope.plot.of_table import profile

__all__ = ["profile"]
