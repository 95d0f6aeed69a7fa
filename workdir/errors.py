"""The errors that speak to the user. The message is one line: what, where, what to do."""


class UserError(Exception):
    """Bad input, something the user can put right before anything has run: exit code 2."""


class Stopped(Exception):
    """The user asked to stop, and what was at hand is finished and saved. The message says where; exit code 0."""


class RunError(Exception):
    """A run that cannot go on: exit code 1."""
