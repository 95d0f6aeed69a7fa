"""The command line: flags and settings, help, lists, status, and the stages."""
