"""
Estimators of dimension fall behind
===================================

Normal clouds of known dimension. Above about 10 each estimator reads too little, and the more so
the fewer the points.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope import metrics

rng = np.random.default_rng(0)
dimensions = np.array([2, 5, 10, 20, 40])
estimators = {"TwoNN": metrics.twonn, "Levina–Bickel, 20 neighbors": metrics.levina_bickel}

ax = plt.subplots()[1]
ax.plot(dimensions, dimensions, color="0.5", linestyle="--", label="the truth")
for color, (name, estimate) in zip(("#0072B2", "#D55E00"), estimators.items(), strict=True):
    for marker, points in (("o", 512), ("s", 2048)):
        clouds = [
            np.pad(rng.normal(size=(points, d)), ((0, 0), (0, 40 - d))) for d in dimensions
        ]  # one width, one program
        found = [float(estimate(cloud)) for cloud in clouds]
        ax.plot(dimensions, found, color=color, marker=marker, label=f"{name}, {points:,} points")
ax.set(
    xlabel="dimension of the cloud",
    ylabel="estimate",
    title="No estimate above 10 stands by itself",
)
ax.legend()
