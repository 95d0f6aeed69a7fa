"""Models that read pictures or sound: files of a folder as windows, and maps whose size changes
from stage to stage.
"""
