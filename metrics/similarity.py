"""Cosines between vectors, and the drift of a cloud from the origin. Nothing here is centred."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def mean_cosine(cloud_PD: Float[Array, "P D"]) -> Float[Array, ""]:
    """Mean cosine over all pairs of different points: (|sum_i u_i|^2 - sum_i |u_i|^2) / (P (P - 1)), u_i = x_i/|x_i|.

    Shapes: P points of width D -> scalar. Units: none. Range: [-1/(P - 1), 1]. Zero vectors have no direction and
    are left out (P counts the others); fewer than two others: NaN. Exact, where Godey et al. 2024 sample pairs; the
    closed form is ours.
    """
    unit_PD, counted_P = _directions(cloud_PD)
    points = counted_P.sum()
    pairs = jnp.square(unit_PD.sum(axis=0)).sum() - jnp.square(unit_PD).sum()
    return jnp.where(points > 1, pairs / (1.0 * points * (points - 1.0)), jnp.nan)


def cross_cosine(a_PD: Float[Array, "P D"], b_QD: Float[Array, "Q D"]) -> Float[Array, ""]:
    """Mean cosine over all P x Q pairs of one point of each cloud: <mean_i a_i/|a_i|, mean_j b_j/|b_j|>.

    Shapes: two clouds of one width D -> scalar. Units: none. Range: [-1, 1]. Zero vectors are left out; a cloud
    with no other: NaN. Source: reconstruction of the query-key similarity that Godey et al. 2024 speak of.
    """
    unit_a_PD, counted_P = _directions(a_PD)
    unit_b_QD, counted_Q = _directions(b_QD)
    return (unit_a_PD.sum(axis=0) / counted_P.sum() * (unit_b_QD.sum(axis=0) / counted_Q.sum())).sum()


def cosine(u_D: Float[Array, " D"], v_D: Float[Array, " D"]) -> Float[Array, ""]:
    """<u, v> / (|u| |v|): two vectors -> scalar in [-1, 1], no units. A zero vector has no direction: NaN."""
    u_D, v_D = u_D.astype(jnp.float32), v_D.astype(jnp.float32)
    return (u_D / jnp.linalg.norm(u_D) * (v_D / jnp.linalg.norm(v_D))).sum()


def mean_vector(cloud_PD: Float[Array, "P D"]) -> Float[Array, " D"]:
    """E x = (1/P) sum_i x_i, in float32."""
    return cloud_PD.astype(jnp.float32).mean(axis=0)


def drift(cloud_PD: Float[Array, "P D"]) -> Float[Array, ""]:
    """|E x|, the norm of the mean vector. Shapes: (P, D) -> scalar. Units: those of x. Range: [0, mean norm].

    Source: Godey et al. 2024.
    """
    return jnp.linalg.norm(mean_vector(cloud_PD))


def mean_norm(cloud_PD: Float[Array, "P D"]) -> Float[Array, ""]:
    """E |x|. Shapes: (P, D) -> scalar. Units: those of x. Range: >= 0. Beside it a drift has a scale."""
    return jnp.linalg.norm(cloud_PD.astype(jnp.float32), axis=1).mean()


def _directions(cloud_PD: Float[Array, "P D"]) -> tuple[Float[Array, "P D"], Bool[Array, " P"]]:
    """x_i/|x_i| with zeros for zero vectors, and which points have a direction."""
    cloud_PD = cloud_PD.astype(jnp.float32)
    norm_P = jnp.linalg.norm(cloud_PD, axis=1)
    nonzero_P = norm_P != 0  # true of NaN, which must not vanish from the mean
    return cloud_PD / jnp.where(nonzero_P, norm_P, 1.0)[:, None], nonzero_P
