"""
Prespecified contrasts, and their verdicts
==========================================

From the table of the optimizer ablations: change, 95 % interval, and the margin inside which a
change counts as none.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
table = pd.read_csv(root / "findings" / "tables" / "optimizer_ablations" / "primary.csv")
table = table[table.quantity.isin(["last_anisotropy", "last_dimension", "last_drift"])]
looks = {"differs": ("#D55E00", "o"), "equivalent": ("#0072B2", "s"), "inconclusive": ("0.4", "^")}
words = {
    "last_anisotropy": "anisotropy",
    "last_dimension": "dimension (log2 units)",
    "last_drift": "drift (log2 units)",
}

figure, axes = plt.subplots(1, 3, figsize=(6.9, 2.6), sharey=True)
for ax, (quantity, rows) in zip(axes, table.groupby("quantity", sort=False), strict=True):
    for place, row in enumerate(rows.itertuples()):
        color, marker = looks.get(row.verdict, ("#CC79A7", "D"))
        ax.fill_betweenx([place - 0.4, place + 0.4], -row.margin, row.margin, color="0.88")
        ax.errorbar(
            row.change,
            place,
            xerr=[[row.change - row.low], [row.high - row.change]],
            color=color,
            marker=marker,
            label=row.verdict,
        )
    ax.axvline(0, color="0.5", linewidth=0.8)
    ax.set(
        xlabel=words[quantity],
        yticks=range(len(rows)),
        yticklabels=[{"sgd": "SGD", "muon": "Muon"}[one.split("_")[0]] for one in rows.after],
    )
handles = {
    label: one for ax in axes for one, label in zip(*ax.get_legend_handles_labels(), strict=True)
}
figure.legend(handles.values(), handles, loc="outside lower right", ncols=3)
figure.suptitle("The optimizer changes the geometry at equal loss", fontsize=9.5)
figure.supxlabel("change against AdamW; gray: the prespecified margin", fontsize=7.5)
