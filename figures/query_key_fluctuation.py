"""Beside their drift, how far do queries and keys spread, and how much of the scores is the drift's alone?"""

from matplotlib.figure import Figure

from figures import by_depth
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    variables = ("query_fluctuation", "key_fluctuation", "score_share_of_means")
    return by_depth.build(runs, variables, "Fluctuation of queries and keys")
