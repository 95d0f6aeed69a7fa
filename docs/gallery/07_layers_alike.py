"""
Which layers are alike
======================

Each layer mixes the last one with noise. Unbiased CKA of every pair of layers, from the family
`comparison`.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
layers = [rng.normal(size=(512, 24))]
for share in (0.3, 0.3, 0.9, 0.3, 0.3):
    mixed = np.tanh(layers[-1] @ rng.normal(size=(24, 24)) / 5)
    layers.append((1 - share) * mixed + share * rng.normal(size=(512, 24)) * mixed.std())

table = anisoscope.measure(layers, families="comparison", nulls=())
alike = table.cka_unbiased_layers.sel(statistic="mean")
figure, ax = plt.subplots(figsize=(4.4, 3.6))
image = ax.imshow(alike, cmap="cividis", vmin=0, vmax=1, origin="lower")
figure.colorbar(image, label="CKA without bias")
ax.set(xlabel="layer", ylabel="layer", title="Layer 3 begins anew")
ax.grid(visible=False)
