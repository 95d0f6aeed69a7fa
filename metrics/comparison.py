"""How alike two representations of the same points are: two layers of a network, or one layer at two checkpoints.

Point i of one cloud and point i of the other are the same position of the same window.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from metrics.cloud import AnyArray, centred
from metrics.neighbours import Neighbours
from metrics.similarity import leave_out


def linear_cka(x_PD: Float[AnyArray, "P D"], y_PE: Float[AnyArray, "P E"], groups: int = 1) -> Float[Array, " R"]:
    """Linear CKA of two clouds: |X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), X and Y centred.

    Shapes: P points of widths D and E -> R = 1 + groups values, or one where groups is 1: first that of the whole
    clouds, then that without the j-th of `groups` equal runs of consecutive points, centred without them. Units:
    none. Range: [0, 1], 1 for clouds that differ by a rotation, a scale and a shift. Independent clouds do not come
    out at 0: normal isotropic ones have about sqrt(D E / ((P + D) (P + E))), 0.11 at P = 4096 and D = E = 512. All
    points of a cloud equal, or a coordinate that is not finite: NaN. Source: Kornblith et al. 2019.
    """
    x_PD, y_PE = _scaled(x_PD), _scaled(y_PE)
    return _normalised(_energy(x_PD, y_PE, groups), _energy(x_PD, x_PD, groups), _energy(y_PE, y_PE, groups))


def layers_cka(x_NPD: Float[AnyArray, "N P D"], groups: int = 1) -> Float[Array, "R N N"]:
    """`linear_cka` of every pair of N clouds, each pair computed once: symmetric, ones on the diagonal, or NaN.

    Shapes: N clouds of P points -> (R, N, N). Memory: a copy of the clouds, so that each is centred once, and `groups`
    products of D x D, those of one pair at a time.
    """
    x_NPD = jax.lax.map(_scaled, x_NPD)
    energy_NNR = _over_pairs(lambda n, m: _energy(x_NPD[n], x_NPD[m], groups), len(x_NPD))
    own_NR = jnp.diagonal(energy_NNR, axis1=0, axis2=1).T
    return jnp.moveaxis(_normalised(energy_NNR, own_NR[:, None], own_NR[None]), 2, 0)


def neighbourhood_overlap(a: Neighbours, b: Neighbours, count: int = 10) -> Float[Array, ""]:
    """Share of a point's `count` nearest in one cloud that are among its `count` nearest in the other, on average.

    Shapes: neighbours of two clouds of the same P points, at least `count` of them for each point -> scalar. Units:
    none. Range: [0, 1]; independent clouds come out at about count/(P - 1). Neighbours are distinct points, each
    known by the first of its copies. The mean is over the points that are the first of their copies in both clouds
    and have `count` neighbours in both; none: NaN. So where one cloud has copies that the other tells apart, as a
    layer of bare embeddings does, the neighbours that only the other has count as different, and the overlap is low.
    Which of several points at the same distance is the last neighbour is arbitrary. Fewer than `count` searched:
    ValueError. Source: Doimo et al. 2020.
    """
    usable_P = a.first_P & b.first_P
    for neighbours in (a, b):
        neighbours.check_searched(count)
        usable_P &= neighbours.distance_PC[:, count - 1] < jnp.inf
    same_PCC = a.index_PC[:, :count, None] == b.index_PC[:, None, :count]
    shared_P = same_PCC.sum(axis=(1, 2)) / count
    return jnp.where(usable_P, shared_P, 0.0).sum() / usable_P.sum()


def layers_overlap(neighbours: Neighbours, count: int = 10) -> Float[Array, "N N"]:
    """`neighbourhood_overlap` of every pair of N clouds, whose neighbours have a leading axis N: symmetric."""

    def of_layer(n: Array) -> Neighbours:
        return jax.tree.map(lambda leaf_N: leaf_N[n], neighbours)

    return _over_pairs(lambda n, m: neighbourhood_overlap(of_layer(n), of_layer(m), count), len(neighbours.first_P))


def _scaled(x_PD: Float[Array, "P D"]) -> Float[Array, "P D"]:
    """Centred, and of a size whose fourth power float32 can hold. All points equal: NaN."""
    x_PD = centred(x_PD)
    return x_PD / jnp.abs(x_PD).max()


def _energy(x_PD: Float[Array, "P D"], y_PE: Float[Array, "P E"], groups: int) -> Float[Array, " R"]:
    """|X^T Y|_F^2 of the groups that are kept, centred by their own mean; x and y are centred as a whole before.

    X^T Y = sum_j M_j - n a b^T, M_j the product of one group, a and b the means of the n points that are kept. All that
    depends on the choice is read off the J x J scalar products <M_j, M_k>: a pass over M for each choice costs more.
    """
    x_JPD, y_JPE = (z_PD.reshape(groups, -1, z_PD.shape[1]) for z_PD in (x_PD, y_PE))
    keep_RJ = leave_out(groups)
    count_R = keep_RJ.sum(axis=1) * x_JPD.shape[1]
    with jax.default_matmul_precision("highest"):
        m_JDE = jnp.einsum("jpd,jpe->jde", x_JPD, y_JPE)
        m_JX = m_JDE.reshape(groups, -1)
        sum_RD, sum_RE = keep_RJ @ x_JPD.sum(axis=1), keep_RJ @ y_JPE.sum(axis=1)  # 0 when all are kept
        products_R = jnp.einsum("rj,jk,rk->r", keep_RJ, m_JX @ m_JX.T, keep_RJ)
        crossed_R = jnp.einsum("rj,rd,jdr->r", keep_RJ, sum_RD, jnp.einsum("jde,re->jdr", m_JDE, sum_RE))
    means_R = jnp.square(sum_RD).sum(axis=1) * jnp.square(sum_RE).sum(axis=1)
    return products_R - 2.0 * crossed_R / count_R + means_R / jnp.square(count_R)


def _normalised(shared: Float[Array, "..."], own_x: Float[Array, "..."], own_y: Float[Array, "..."]) -> Array:
    return jnp.minimum(shared / jnp.sqrt(own_x * own_y), 1.0)  # rounding can leave 1 + 1e-7


def _over_pairs(of_pair: Callable[[Array, Array], Array], layers: int) -> Float[Array, "N N ..."]:
    """of_pair(n, m) for n <= m, one pair after another; for n > m what (m, n) gave."""
    row, column = np.triu_indices(layers)
    value_X = jax.lax.map(lambda pair: of_pair(*pair), (jnp.asarray(row), jnp.asarray(column)))
    place_NN = np.zeros((layers, layers), np.int32)
    place_NN[row, column] = place_NN[column, row] = np.arange(len(row))
    return value_X[place_NN]
