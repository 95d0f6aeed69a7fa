"""Models of ours as Hugging Face folders, and such folders as models of ours, without torch."""

from anisoscope.measurement.sources.hub.folders.convert import FILES, SETTINGS, class_of, read_folder, write

__all__ = ["FILES", "SETTINGS", "class_of", "read_folder", "write"]
