"""The one error that speaks to the user."""


class UserError(Exception):
    """Something the user can put right. The message is one line: what, where, what to do; main exits with 2."""
