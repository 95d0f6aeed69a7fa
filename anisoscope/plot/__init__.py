"""The papers' figures, drawn from tables alone."""
