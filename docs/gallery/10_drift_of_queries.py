"""
Aligned means of queries and keys sharpen attention
===================================================

Heads whose queries and keys are moved along one direction. The further both go, the more of the score their means
make; it is the same for all keys, so that entropy hardly changes.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
queries, keys = rng.normal(size=(2, 1, 8, 16, 32, 16))
shift = np.linspace(0, 2, 8)[:, None, None, None] * np.ones(16) / 4
table = anisoscope.measure_attention(queries + 4 * shift, keys + 4 * shift, mask="causal").isel(block=0)

figure, axes = plt.subplots(1, 2, figsize=(6.9, 3))
for ax, quantity in zip(axes, ("score_share_of_means", "attention_entropy"), strict=True):
    x = table.query_drift.sel(statistic="mean")
    mean, low, high = (table[quantity].sel(statistic=end) for end in ("mean", "low", "high"))
    ax.errorbar(x, mean, (mean - low, high - mean), color="#0072B2", marker="o", linestyle="none", capsize=2)
    ax.set(xlabel="query drift |E q|", ylabel=table[quantity].attrs["long_name"], ylim=(0, None))
axes[1].set_ylabel("attention entropy (nat)")
figure.suptitle("Scores grow by what is common to all keys; attention stays")
