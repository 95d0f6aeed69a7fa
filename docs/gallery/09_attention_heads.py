"""
Where heads look
================

Made-up queries and keys of 4 layers of 4 heads; in the later layers the key of the first token is drawn
towards the mean query.
"""

import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
queries, keys = rng.normal(size=(2, 4, 4, 16, 32, 8))  # layers, heads, windows, tokens, width
queries += 1.0
pull = np.array([0, 0.5, 1.5, 3.0])[:, None] * np.array([0.2, 0.6, 1.0, 1.4])
keys[:, :, :, 0] += pull[:, :, None, None]

table = anisoscope.measure_attention(queries, keys, mask="causal")
first = table.attention_first_token.sel(statistic="mean")
figure, ax = plt.subplots(figsize=(4.4, 3.6))
image = ax.imshow(first, cmap="cividis", vmin=0, vmax=1, origin="lower")
for block in range(4):
    for head in range(4):
        value = float(first[block, head])
        ax.text(
            head,
            block,
            f"{value:.2f}",
            ha="center",
            va="center",
            color="black" if value > 0.5 else "white",
            fontsize=7.5,
        )
figure.colorbar(image, label="attention on the first token")
ax.set(
    xlabel="head",
    ylabel="block",
    xticks=range(4),
    yticks=range(4),
    title="Sinks form in the later blocks",
)
ax.grid(visible=False)
