"""Everything that is said of a checkpoint, from what was read of it: proxies fitted here, and all
of them tested.

Pure and un-jitted: whoever reads a model compiles it with the reading, or by itself. Arrays carry
the letters of `models`, and X frames: every fit of every kind; M matrices.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.subspaces import proxies, subspace_energy, weight_gradients
from anisoscope.subspaces.gradient_inputs import Read, Windows
from anisoscope.subspaces.proxies import Fitted, Frames

FITS = ("early", "here", "previous", "untrained", "other seed")  # what a proxy was fitted to
GIVEN = tuple(fit for fit in FITS if fit != "here")


class Tested(NamedTuple):
    # one axis of frames: of each fit that is there, in the order of FITS, every kind
    values: dict[str, Array]
    panel: dict[str, dict[str, Array]]  # of gradients, by kind of rows: {quantity: (layer, …, R)}
    fitted: Fitted  # here


def test(
    cloud_NPD: Array,
    read_now: Read,
    windows: Windows,
    basis_DD: np.ndarray,
    given: dict[str, Frames],
    moved: dict[str, weight_gradients.Rows],
    tangents: TangentsConfig,
) -> Tested:
    """`cloud_NPD` are states of other windows, to fit to; `given` has proxies of the fits that
    there are beside that.

    `moved` are the updates {"between": …, "step": …}, as `Read.weights` are the gradients.
    """
    fitted = proxies.fit(cloud_NPD, tangents)
    by_rank, every = [], given | {"here": fitted.frames}
    matrix_NMDD = weight_gradients.short(
        {"gradient": read_now.weights} | moved, basis_DD, len(cloud_NPD)
    )
    for rank in tangents.ranks:
        frames_NXDE = jnp.moveaxis(
            jnp.stack([every[fit][rank] for fit in FITS if fit in every]), 2, 0
        )
        frames_NXDE = frames_NXDE.reshape(len(frames_NXDE), -1, *frames_NXDE.shape[3:])
        by_rank.append(
            subspace_energy.of_rank(read_now, frames_NXDE, matrix_NMDD, windows.bins_P, tangents)
        )
    values = {name: jnp.stack([arrays[name] for arrays in by_rank]) for name in by_rank[0]}
    values |= subspace_energy.of_gradients(read_now, windows.bins_P, tangents)
    values |= subspace_energy.of_local(read_now, cloud_NPD, tangents)
    return Tested(values, subspace_energy.gradient_panel(read_now, windows, tangents), fitted)
