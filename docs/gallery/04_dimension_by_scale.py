"""
A dimension has a scale
=======================

A noisy circle in 16 dimensions, by GRIDE between neighbors k and 2k. Near
neighbors see the noise, far ones the circle.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, 1024)
circle = (
    np.stack([np.cos(angle), np.sin(angle)], axis=1) @ np.linalg.qr(rng.normal(size=(16, 2)))[0].T
)
noise = rng.normal(size=(1024, 16))
sizes = (0.003, 0.03, 0.1)

table = anisoscope.measure([circle + size * noise for size in sizes], families="scale", nulls=())
ax = plt.subplots()[1]
for layer, (size, color, marker) in enumerate(
    zip(sizes, ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True)
):
    gride = table.gride.isel(layer=layer)
    mean, low, high = (gride.sel(statistic=end) for end in ("mean", "low", "high"))
    ax.fill_between(gride.neighbors, low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(gride.neighbors, mean, color=color, marker=marker, label=f"noise {size}")
ax.set_xscale("log", base=2)
ax.set(
    xlabel="neighbor k (compared with 2k)",
    ylabel="dimension (GRIDE)",
    ylim=(0, None),
    title="Noise is seen up close",
)
ax.legend()
