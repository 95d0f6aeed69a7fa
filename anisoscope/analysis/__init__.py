"""Analyses of several tables: shapes, contrasts, correlations."""
