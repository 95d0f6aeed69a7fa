"""Do queries and keys drift apart from 0, together, while a model learns? (Anisotropy Is Inherent to Self-Attention)"""

from matplotlib.figure import Figure

from figures import by_depth
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    variables = ("query_drift", "key_drift", "query_key_alignment", "query_key_cosine")
    return by_depth.build(runs, variables, "Drift of queries and keys")
