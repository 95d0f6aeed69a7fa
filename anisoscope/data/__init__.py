"""Corpora: sources of text, cleaning, and windows."""
