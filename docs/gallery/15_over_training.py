"""
Your own network over training
==============================

A small network learns to reproduce its input. Function and metrics are one compiled program,
called at every checkpoint.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import anisoscope

rng = np.random.default_rng(0)
windows = jnp.asarray(
    rng.normal(size=(16, 32, 2)) @ rng.normal(size=(2, 24)) + 0.1 * rng.normal(size=(16, 32, 24))
)
params = {name: jnp.asarray(rng.normal(size=(24, 24)) / 24**0.5) for name in ("into", "out")}


def layers(params, x):
    hidden = jnp.tanh(x @ params["into"])
    return jnp.stack([x, hidden, hidden @ params["out"]])


def loss(params):
    return 24 * ((layers(params, windows)[-1] - windows) ** 2).mean()


@jax.jit
def step(params):
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, jax.grad(loss)(params))


names = ("input", "hidden", "output")
table_of = anisoscope.make_measure(
    layers, windows, families="spectrum", nulls=(), layer_names=names
)
kept, tables = [0, 4, 16, 64, 256], []
for now in range(kept[-1] + 1):
    if now in kept:
        tables.append(table_of(params))
    params = step(params)

ax = plt.subplots()[1]
for layer, color, marker in zip(names, ("0.4", "#0072B2", "#D55E00"), "os^", strict=True):
    values = [table.participation_ratio.sel(layer=layer) for table in tables]
    mean, low, high = (
        np.array([float(one.sel(statistic=end)) for one in values])
        for end in ("mean", "low", "high")
    )
    ax.fill_between(range(len(kept)), low, high, color=color, alpha=0.2, linewidth=0)
    ax.plot(range(len(kept)), mean, color=color, marker=marker, label=layer)
ax.set(
    xlabel="step",
    ylabel="participation ratio",
    ylim=(0, None),
    title="The output takes on the input's shape",
)
ax.set_xticks(range(len(kept)), kept)
ax.legend()
