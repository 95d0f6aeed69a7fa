"""Untrained blocks under a common bias: settings, simulation, theory, tables."""
