"""
Drift of queries and keys sharpens attention
============================================

Eight heads whose queries and keys are moved along one direction, further from head to head. The
means come to make nearly all of a score, and that part is the same for all keys. Attention sharpens
by what is left: the spread of the keys along that direction, times the drift of the queries.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
queries, keys = rng.normal(size=(2, 1, 8, 16, 32, 16))
shift = np.linspace(0, 2, 8)[:, None, None, None] * np.ones(16) / 4
table = anisoscope.measure_attention(queries + 4 * shift, keys + 4 * shift, mask="causal").isel(
    block=0
)

figure, axes = plt.subplots(1, 2, figsize=(6.9, 3))
words = {
    "score_share_of_means": "share of the scores by the means",
    "attention_entropy": "attention entropy (nat)",
}
for ax, quantity in zip(axes, words, strict=True):
    x = table.query_drift.sel(statistic="mean")
    mean, low, high = (table[quantity].sel(statistic=end) for end in ("mean", "low", "high"))
    ax.errorbar(
        x, mean, (mean - low, high - mean), color="#0072B2", marker="o", linestyle="none", capsize=2
    )
    ax.set(xlabel="query drift |E q|", ylabel=words[quantity], ylim=(0, None))
figure.suptitle("The further both drift, the sharper attention is")
