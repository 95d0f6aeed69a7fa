"""What the flags of main.py ask for: settings and help, lists and status, and the stages."""
