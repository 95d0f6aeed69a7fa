"""
Spectra of a decoder and an encoder
===================================

Eigenvalues of the covariance, as shares, of the embedding, the middle and the last layer of SmolLM2
135M and MiniLM. In the middle of the decoder the first is a thousand times the second.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
rows = pd.read_csv(root / "findings" / "tables" / "real_models" / "spectra.csv")

figure, axes = plt.subplots(1, 2, sharex=True, sharey=True)
for ax, model in zip(axes, ("SmolLM2-135M-Instruct", "MiniLM"), strict=True):
    own = rows[(rows.model == model) & (rows.share > 0)]
    last = own.layer.max()
    for name, layer in {"embedding": 0, "middle": last // 2, "last layer": last}.items():
        line = own[own.layer == layer]
        ax.loglog(line["rank"], line.share, label=name)
    ax.set(title=model.partition("-")[0], xlabel="rank", ylim=(1e-6, 1.5))
axes[0].set_ylabel("share of the variance")
axes[1].legend()
figure.suptitle("In the middle of the decoder one eigenvalue stands apart")
