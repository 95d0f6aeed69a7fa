"""Analyses of several tables: shapes, contrasts, variance components, correlations."""
