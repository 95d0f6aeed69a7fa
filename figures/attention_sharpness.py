"""Does attention sharpen while a model learns? (Anisotropy Is Inherent to Self-Attention)"""

from matplotlib.figure import Figure

from figures import by_depth
from figures.run import Run


def build(runs: dict[str, Run]) -> Figure | None:
    variables = ("score_std_within", "attention_entropy", "attention_max", "attention_first")
    return by_depth.build(runs, variables, "Sharpness of attention")
