"""The papers' claims as data, the rule of each, and the verdicts of experiments."""
