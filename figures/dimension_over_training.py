"""Intrinsic dimension, averaged over blocks, against training: up, then down? (Shape of Learning, 2)"""

from matplotlib.figure import Figure

from figures import over_training
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    estimators = ("twonn", "twonn_mle", "twonn_microscope")
    return over_training.build(runs, estimators, "Dimension while training", sharey=True)
