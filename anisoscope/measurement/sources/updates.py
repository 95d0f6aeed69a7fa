"""The spectrum of the next update of every matrix of a block, in the table of a checkpoint (`measure.updates`)."""

import pathlib
from collections.abc import Callable, Iterable

import jax
import numpy as np
import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources import provenance
from anisoscope.measurement.tables import files
from anisoscope.measurement.tables.measurements import read_step
from anisoscope.measurement.tables.updates import QUANTITIES, labelled
from anisoscope.metrics import matrix
from anisoscope.training.checkpoint import Beside, Checkpoints
from anisoscope.training.replay import NextStep
from anisoscope.utils import shares
from anisoscope.utils.stop import Stop

KERNELS = {"attention": "qkv", "attention_out": "attention_out", "mlp": "mlp_up", "mlp_out": "mlp_down"}


def add(
    config: Config,
    corpus: Corpus,
    store: Checkpoints | Beside,
    tables: pathlib.Path,
    steps: Iterable[int],
    name: str,
    stop: Stop,
) -> set[int]:
    """To the tables of these checkpoints that lack it; whose that was."""
    there = {step: read_step(tables / f"{step}.nc") for step in steps}
    todo = {step: table for step, table in there.items() if not {*QUANTITIES} <= {*table.data_vars}}

    def begin() -> Callable[[int], xr.Dataset]:
        next_step = NextStep(config, corpus, store)

        @provenance.advice_on_damage()
        def of_step(step: int) -> xr.Dataset:
            return labelled(list(KERNELS), spectra(next_step.change(step)["blocks"]))

        return of_step

    def keep(step: int, added: xr.Dataset) -> None:
        files.write(xr.merge([todo[step], added], combine_attrs="override"), tables / f"{step}.nc")

    written = {step: [tables / f"{step}.nc"] for step in todo}
    shares.each(written, begin, keep, name, ("updates", "the update of"), stop, apart=True)
    return {*todo}


def spectra(blocks: dict) -> dict[str, np.ndarray]:
    """Of the change of the blocks' parameters: {quantity: (block, kernel)}."""
    of_kernels = [_of_blocks(blocks[where]["kernel"]) for where in KERNELS.values()]
    return {name: np.stack([np.asarray(one[name]) for one in of_kernels], axis=1) for name in QUANTITIES}


@jax.jit
def _of_blocks(change_NRC: jax.Array) -> dict[str, jax.Array]:
    """One after another: on a CPU, decompositions of many matrices at once can wait for each other for ever."""

    def of_matrix(change_RC: jax.Array) -> dict[str, jax.Array]:
        values_E = matrix.singular_values(change_RC)
        return {name: quantity.read(values_E) for name, quantity in QUANTITIES.items()}

    return jax.lax.map(of_matrix, change_NRC)
