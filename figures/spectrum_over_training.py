"""How many directions carry the variance while a model learns, and how fast does the spectrum fall?"""

from matplotlib.figure import Figure

from figures import over_training
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    readings = ("effective_rank", "participation_ratio", "alpha_req")
    return over_training.build(runs, readings, "Spectrum while training", sharey=False)
