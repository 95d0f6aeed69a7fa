"""
Anisotropy over layers
======================

Three layers of made-up activations, in which a common direction grows. Whole sentences are
resampled for the band.
"""

import numpy as np

import anisoscope

rng = np.random.default_rng(0)
sentence = np.repeat(np.arange(64), 16)  # which sentence each vector comes from
center = rng.normal(size=(64, 1))
noise = rng.normal(size=(1024, 32))
direction = rng.normal(size=32) / np.sqrt(32)
layers = [noise + strength * center[sentence] * direction for strength in (0, 1, 2, 4, 6)]

table = anisoscope.measure(layers, clusters=sentence, families="spectrum", nulls=())
ax = anisoscope.plot.by_layer(table, "anisotropy")
ax.set(ylim=(0, None), title="One direction takes over the variance")
