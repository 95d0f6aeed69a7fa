"""Transformers. Shape letters of the whole project: docs/reference/letters.md."""
