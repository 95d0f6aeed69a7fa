"""What tests of arrays share: clouds and heads to be measured, and a quick measurement of them."""

import numpy as np

from anisoscope import measure

LAYERS, POINTS, WIDTH = 2, 96, 6
GENERATOR = np.random.default_rng(0)
CLOUDS = GENERATOR.normal(size=(LAYERS, POINTS, WIDTH)) * np.arange(1, WIDTH + 1)
UNEQUAL_P = np.repeat(np.arange(12), [31, 13, 8, 8, 8, 8, 8, 4, 4, 2, 1, 1])
HEADS = GENERATOR.normal(size=(1, 2, 3, 4, 5))
FAMILIES = ("spectrum", "dimension", "comparison")


class Tensor(np.ndarray):
    """As PyTorch has them: their own conversions, no NumPy's."""

    def detach(self):
        return self

    cpu = resolve_neg = resolve_conj = detach

    def numpy(self):
        return np.asarray(self)

    def float(self):
        return self.real.astype(np.float32).view(Tensor)


def measured(vectors, clusters=None, **given):
    """One program for all tests that ask for this."""
    return measure(vectors, clusters, **{"families": FAMILIES, "folds": 4} | given)


def value(table, name, **where):
    return table[name].sel(statistic="mean", **where).values
