"""Figures of untrained blocks."""
