"""The weights of a run over its training: spectra of its matrices, and its two tables of tokens as clouds of their own.

No exponent of a power law is fitted: ranks say how many directions a matrix has without one.
"""

import pathlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from anisoscope.measurement.sources.run import open_run
from anisoscope.metrics import matrix, similarity, spectrum

KERNELS = {"attention_out": "attention_out", "mlp": "mlp_up", "mlp_out": "mlp_down"}
HEADS = ("query", "key", "value")  # the parts of one matrix
TABLES = {"embedding": "tokens", "unembedding": "head"}


def of_run(root: str | pathlib.Path) -> pd.DataFrame:
    """A row for each checkpoint, matrix of a block (from 1) and table of tokens (block 0).

    stable_rank, effective_rank: of the matrix, not centred. largest: its largest singular value. moved: how far its
    normalised spectrum lies from that of the checkpoint before, `matrix.spectral_distance`; NaN of the first. Of tables
    also anisotropy, participation_ratio and mean_cosine of their rows, the tokens. A tied model has one table.
    """
    run, rows, before = open_run(root), [], {}
    for step in run.steps:
        for block, name, weights in matrices(run.params(step)):
            values_E = _values(weights)
            known = before.get((block, name))
            row = {"step": step, "block": block, "matrix": name, "largest": float(values_E[0])}
            row |= {"stable_rank": matrix.stable_rank(values_E), "effective_rank": matrix.effective_rank(values_E)}
            row["moved"] = np.nan if known is None else matrix.spectral_distance(values_E, known)
            rows.append(row | (_of_cloud(weights) if name in TABLES else {}))
            before[block, name] = values_E
    frame = pd.DataFrame(rows)
    numbers = frame.columns.difference(["step", "block", "matrix"], sort=False)
    return frame.astype(dict.fromkeys(numbers, float))


def matrices(params: dict) -> Iterator[tuple[int, str, jax.Array]]:
    """(block, name, matrix): queries, keys and values apart; of tables a row is a token."""
    for name, key in TABLES.items():
        if key in params:
            yield 0, name, jnp.asarray(params[key] if key == "tokens" else params[key].T, jnp.float32)
    blocks = params["blocks"]
    split = dict(zip(HEADS, jnp.split(blocks["qkv"]["kernel"], 3, axis=-1), strict=True))
    of_blocks = split | {name: blocks[key]["kernel"] for name, key in KERNELS.items()}
    for name, kernel_NRC in of_blocks.items():
        for block, kernel_RC in enumerate(kernel_NRC, 1):
            yield block, name, jnp.asarray(kernel_RC, jnp.float32)


_values = jax.jit(matrix.singular_values)


@jax.jit
def _of_cloud(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    own = spectrum.spectrum(cloud_PD)
    read = {"anisotropy": spectrum.anisotropy, "participation_ratio": spectrum.participation_ratio}
    values = {name: of(own)[0] for name, of in read.items()}
    return values | {"mean_cosine": similarity.mean_cosine(cloud_PD)}
