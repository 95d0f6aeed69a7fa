"""
Dimension beside its Gaussian null model
========================================

A curved sheet and a Gaussian cloud of the same spectrum. The excess says how far from featureless each layer is:
below 0 where points lie near something of fewer dimensions than their spectrum fills.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
angle, height = rng.uniform(0, 2 * np.pi, (2, 1024))
sheet = np.stack(
    [
        np.cos(angle),
        np.sin(angle),
        np.cos(2 * height),
        np.sin(height),
        np.sin(2 * height),
        np.cos(height),
    ]
)
embed = np.linalg.qr(rng.normal(size=(16, 6)))[0]
noise = rng.normal(size=(1024, 16))
layers = [(embed @ sheet).T + size * noise for size in (0.02, 0.1, 0.2, 0.4)]

table = anisoscope.measure(layers, families="dimension", layer_names=["0.02", "0.1", "0.2", "0.4"])
figure, (left, right) = plt.subplots(1, 2, figsize=(6.9, 3))
anisoscope.plot.by_layer(table, "twonn", ax=left).set(
    title="TwoNN", ylabel="intrinsic dimension", xlabel="noise"
)
anisoscope.plot.by_layer(table, "twonn", null="gaussian", ax=right)
right.set(title="minus that of the Gaussian null", ylabel="excess over gaussian", xlabel="noise")
right.axhline(0, color="0.5", linewidth=0.8)
