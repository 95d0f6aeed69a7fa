"""Samples of activations, kept while somebody's own loop runs, and tables of them a step."""
