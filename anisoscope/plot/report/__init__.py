"""One self-contained page of all that was measured, drawn from tables alone."""
