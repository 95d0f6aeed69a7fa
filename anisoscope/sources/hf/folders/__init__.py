"""Write our models as Hugging Face folders, and read such folders, without torch."""

from anisoscope.sources.hf.folders.convert_checkpoint import (
    FILES,
    SETTINGS,
    find_class,
    read_folder,
    write_folder,
)

__all__ = ["FILES", "SETTINGS", "find_class", "read_folder", "write_folder"]
