"""The command: its flags and settings, help, lists and status, and what its stages do."""
