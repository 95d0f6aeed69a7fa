"""Write models of ours as Hugging Face folders, and read such folders as ours, without torch."""

from anisoscope.sources.hf.folders.convert_checkpoint import (
    FILES,
    SETTINGS,
    find_class,
    read_folder,
    write,
)

__all__ = ["FILES", "SETTINGS", "find_class", "read_folder", "write"]
