"""A run on disk, and what every room that touches it needs: files, folders, settings, stopping,
processes, errors.
"""
