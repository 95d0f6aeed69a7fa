"""
The dimension of each point
===========================

A line that runs into a ball. Each point has the dimension of its 20 nearest neighbors.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.scale import local_dimensions

rng = np.random.default_rng(0)
ball = rng.normal(size=(700, 3))
ball *= (rng.uniform(size=(700, 1)) ** (1 / 3)) / np.linalg.norm(ball, axis=1, keepdims=True)
line = (
    np.zeros((300, 3)) + [1, 0, 0] * rng.uniform(1, 4, (300, 1)) + 0.002 * rng.normal(size=(300, 3))
)
cloud = np.concatenate([ball, line]).astype(np.float32)

local = local_dimensions(nearest_neighbors(cloud, 20), 20)
figure, ax = plt.subplots(figsize=(6, 2.8))
image = ax.scatter(cloud[:, 0], cloud[:, 1], c=np.clip(local, 1, 3), s=8, cmap="cividis")
figure.colorbar(image, label="local dimension (1 to 3)", shrink=0.75)
ax.set(
    xlabel="first coordinate",
    ylabel="second coordinate",
    aspect="equal",
    title="20 neighbors tell the line from the ball",
)
