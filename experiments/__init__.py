"""One short file for each experiment; each defines get_config()."""
