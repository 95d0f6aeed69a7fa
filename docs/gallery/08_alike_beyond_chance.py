"""
Alike beyond chance
===================

Two independent clouds seem alike by linear CKA where points are few. The unbiased form has 0 on
average.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope import metrics

rng = np.random.default_rng(0)
counts = (64, 128, 256, 512, 1024)
draws = 8

ax = plt.subplots()[1]
for name, metric, color, marker in (
    ("linear CKA", metrics.cka, "#D55E00", "s"),
    ("without bias", metrics.cka_unbiased, "#0072B2", "o"),
):
    values = np.array(
        [
            [float(metric(*rng.normal(size=(2, points, 128)))) for _ in range(draws)]
            for points in counts
        ]
    )
    ax.plot(counts, values.mean(axis=1), color=color, marker=marker, label=name)
    ax.fill_between(
        counts, values.min(axis=1), values.max(axis=1), color=color, alpha=0.2, linewidth=0
    )
ax.axhline(0, color="0.5", linewidth=0.8)
ax.set_xscale("log", base=2)
ax.set(
    xlabel="points, of width 128",
    ylabel=f"CKA of independent clouds, {draws} draws",
    title="Linear CKA calls clouds alike that have nothing in common",
)
ax.legend()
