"""
One long vector makes a bell
============================

64 windows of 16 isotropic vectors. The first token of each is made longer, and anisotropy
follows it. Without the first token nothing has happened: never quote one of these without the
other.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope import metrics

rng = np.random.default_rng(0)
windows = rng.normal(size=(64, 16, 32))
direction = rng.normal(size=32) / np.sqrt(32)
lengths = np.array([0, 2, 5, 10, 20, 50, 100])

ax = plt.subplots()[1]
for name, first, color, marker in (
    ("all positions", 0, "#0072B2", "o"),
    ("without the first token", 1, "#D55E00", "s"),
):
    values = []
    for length in lengths:
        cloud = windows.copy()
        cloud[:, 0] += length * direction * np.sqrt(32)
        values.append(float(metrics.anisotropy(cloud[:, first:].reshape(-1, 32))))
    ax.plot(lengths, values, color=color, marker=marker, label=name)
ax.set(
    xlabel="length added to the first token, in norms of the others",
    ylabel="anisotropy",
    ylim=(0, 1.04),
)
ax.set_title("One vector of sixteen decides")
ax.legend(loc="center right")
