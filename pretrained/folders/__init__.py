"""Models of ours as Hugging Face folders, and such folders as models of ours: `read` and `write`, without torch."""

from pretrained.folders.convert import FILES, SETTINGS, class_of, read, write

__all__ = ["FILES", "SETTINGS", "class_of", "read", "write"]
