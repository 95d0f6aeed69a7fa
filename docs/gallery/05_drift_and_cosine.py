"""
Mean cosine follows drift, anisotropy need not
==============================================

An isotropic cloud that is moved away from the origin. Mean cosine rises; anisotropy, which is
centered, does not.
"""

import matplotlib.pyplot as plt
import numpy as np

from anisoscope import metrics

rng = np.random.default_rng(0)
cloud = rng.normal(size=(2048, 64))
direction = np.ones(64) / 8
shifts = np.linspace(0, 24, 9)

ax = plt.subplots()[1]
for name, metric, color, marker in (
    ("mean cosine", metrics.mean_cosine, "#0072B2", "o"),
    ("anisotropy about the origin", metrics.anisotropy_uncentered, "#D55E00", "x"),
    ("anisotropy", metrics.anisotropy, "#009E73", "^"),
):
    values = [float(metric(cloud + shift * direction)) for shift in shifts]
    drifts = [float(metrics.drift(cloud + shift * direction)) for shift in shifts]
    ax.plot(drifts, values, color=color, marker=marker, label=name)
ax.set(
    xlabel="drift |E x|",
    ylabel="value",
    ylim=(-0.02, 1),
    title="Moved from the origin, not stretched",
)
ax.legend()
