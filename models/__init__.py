"""Transformers; the shape letters of the whole project are in docs/reference/letters.md."""
