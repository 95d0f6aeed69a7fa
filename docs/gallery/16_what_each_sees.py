"""
What each quantity sees
=======================

Six clouds of 1,000 points in the plane. Bold: what differs from the round cloud by more than a
fifth. No single number tells all six apart.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope import metrics

rng = np.random.default_rng(0)
cloud = rng.normal(size=(1000, 2))
angle = rng.uniform(0, 2 * np.pi, 1000)
long = np.where(np.arange(1000)[:, None] < 10, [[30.0, 30.0]], cloud)
clouds = {
    "round": cloud,
    "stretched": cloud * [4, 1],
    "moved": cloud + np.array([4, 4]),
    "a curve": 2 * np.stack([np.cos(angle), np.sin(angle)], axis=1),
    "1 % long": long,
    "two groups": cloud / 2 + np.where(rng.uniform(size=(1000, 1)) < 0.5, 3, -3) * [1, 1],
}
quantities = (
    "anisotropy",
    "participation_ratio",
    "isoscore",
    "twonn",
    "mean_cosine",
    "drift",
    "mean_norm",
)

figure, axes = plt.subplots(1, 6, figsize=(8.4, 3.4))
figure.get_layout_engine().set(rect=(0.13, 0.4, 0.87, 0.6))
figure.suptitle(
    "No single number tells all six from the round cloud (bold: it differs)", fontsize=9.5
)
for column, (ax, (name, points)) in enumerate(zip(axes, clouds.items(), strict=True)):
    ax.scatter(*points.T, s=1, color="#0072B2")
    span = 1.1 * np.abs(points).max()
    ax.set(
        xlim=(-span, span), ylim=(-span, span), aspect="equal", title=name, xticks=[0], yticks=[0]
    )
    for row, quantity in enumerate(quantities):
        value, usual = (float(getattr(metrics, quantity)(one)) for one in (points, cloud))
        weight = "bold" if abs(value - usual) > 0.2 * max(abs(usual), 0.5) else "normal"
        height = 0.38 - 0.052 * row
        figure.text(
            0.214 + 0.1457 * column,
            height,
            f"{round(value, 2) + 0:.2f}",
            ha="center",
            weight=weight,
            fontsize=8,
        )
        if column == 0:
            figure.text(0.005, height, quantity, fontsize=8)
