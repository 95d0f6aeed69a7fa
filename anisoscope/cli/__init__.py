"""The command line: flags and settings, help, lists, and the stages."""
