"""Files, folders, settings, signals, processes and errors, for all other packages."""
