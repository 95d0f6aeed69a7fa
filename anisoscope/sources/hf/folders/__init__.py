"""Models of ours as Hugging Face folders, and such folders as models of ours, without torch."""

from anisoscope.sources.hf.folders.convert_checkpoint import (
    FILES,
    SETTINGS,
    class_of,
    read_folder,
    write,
)

__all__ = ["FILES", "SETTINGS", "class_of", "read_folder", "write"]
