"""When does each layer take its final shape, and how much does it change between checkpoints?"""

from matplotlib.figure import Figure

from figures import by_depth
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    return by_depth.build(runs, ("cka_last", "overlap_last", "cka_previous"), "Change of layers while training")
