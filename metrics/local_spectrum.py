"""The spectrum of neighborhoods: how evenly points spread up close, whatever the whole cloud does.

X are the points of a neighborhood: a point and its nearest neighbors.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, product
from anisoscope.metrics.neighbors import Neighbors

COUNT = 20  # nearest neighbors
# neighborhoods whose coordinates exist at once
AT_ONCE, AT_ONCE_ON_ACCELERATORS = 64, 4096


class LocalIsotropy(NamedTuple):
    anisotropy: Float[Array, ""]
    participation_ratio: Float[Array, ""]


def local_isotropy(
    cloud_PD: Float[AnyArray, "P D"], neighbors: Neighbors, count: int = COUNT
) -> LocalIsotropy:
    """Anisotropy and participation ratio of neighborhoods, each about its own mean.

    They are the means over the distinct points i of

        max(lambda_i) / sum(lambda_i)     and     (sum lambda_i)^2 / sum(lambda_i^2),

    lambda_i the eigenvalues of the covariance of i and its `count` nearest distinct points. Ranges:
    [1/count, 1] and [1, count]; no units. They do not change where the cloud is rotated, moved or
    scaled. Cai et al. 2021, Isotropy in the Contextual Embedding Space, find clouds that are
    anisotropic as a whole and isotropic up close; they center clusters and take the mean cosine.
    That is about -1/count of any cloud: centered vectors add up to 0. So this project reads the
    spectrum. So few points look less isotropic than they are: of n = count + 1 independent points
    of an isotropic Gaussian 1/participation ratio is on average (count + D + 1) / (count D + 2).
    And all that stretches a cloud without bending it can leave neighborhoods round: the Gaussian
    null model, a cloud of the same spectrum, tells what its spectrum alone makes of them.

    Args:
        cloud_PD: P points of width D.
        neighbors: theirs, `count` or more.
        count: nearest neighbors of a neighborhood.

    Returns:
        Two scalars; NaN where no point has so many others that differ from it.

    Raises:
        ValueError: fewer neighbors were searched.
    """
    neighbors.check_searched(count)
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    far_P = neighbors.distance_PC[:, count - 1]
    used_P = neighbors.first_P & jnp.isfinite(far_P) & (far_P > 0)

    def shares(point: tuple[Array, ...]) -> Array:
        i, index_C, size = point
        near_XD = cloud_PD[jnp.append(index_C, i)] - cloud_PD[i][None]
        near_XD = near_XD / size  # of any scale, its squares are in float32
        near_XD = near_XD - near_XD.mean(axis=0, keepdims=True)
        value_X = jnp.linalg.eigvalsh(product(near_XD, near_XD.T))
        return value_X / value_X.sum()

    size_P = jnp.where(used_P, far_P, 1.0)
    points = jnp.arange(len(cloud_PD)), neighbors.index_PC[:, :count], size_P
    most = AT_ONCE if jax.default_backend() == "cpu" else AT_ONCE_ON_ACCELERATORS
    share_PX = jax.lax.map(shares, points, batch_size=min(most, len(cloud_PD)))

    def mean(value_P: Array) -> Array:
        return jnp.where(used_P, value_P, 0.0).sum() / used_P.sum()

    return LocalIsotropy(mean(share_PX[:, -1]), mean(1.0 / jnp.square(share_PX).sum(axis=1)))
