"""The metrics of one matrix as users call them, and rules that all metrics share.

>>> import anisoscope, numpy as np
>>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
>>> print(f"{anisoscope.metrics.anisotropy(x):.2f} {anisoscope.metrics.levina_bickel(x, k=10):.1f}")
0.74 4.0

Every function takes a matrix of NumPy, JAX, PyTorch, pandas or xarray, computes in float32 (also
with `jax_enable_x64`), and returns a JAX scalar. Under `jax.jit`, `jax.vmap` and `jax.grad` they
behave as JAX functions do. Derivatives are NaN for `linearity`, `rsa` and `procrustes` where
singular values are equal, for `curvature` where the path stands still or goes straight on, and for
`ph_dimension`. `anisoscope.measure` adds intervals and null models.

All raise a one-line ValueError for what `anisoscope.measure` refuses (masked or missing numbers,
types that are not real numbers, differences that float32 would lose) and for fewer than two points.
Frames are paired by their labels. A traced array cannot raise: its value is NaN.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from anisoscope.metrics import dimension, estimators, scale, similarity, spectrum, windows
from anisoscope.metrics.cloud import Scalar, centered, scale_to_unit, small_gram
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors
from anisoscope.metrics.public_metric import public_metric

MOST_PAIRED = 40_000  # points whose pairwise distances are held at once


@public_metric()
def anisotropy(x: ArrayLike) -> Scalar:
    """Share of the variance along the top principal direction: lambda_1 / sum(lambda).

    A share of the covariance's trace, in [1/min(points, width), 1]; NaN where all points are equal.
    Source: Razzhigaev et al. 2024, The Shape of Learning.
    """
    return _top_share(centered(x))


@public_metric(about_mean=False)
def anisotropy_uncentered(x: ArrayLike) -> Scalar:
    """Share of the top direction of (1/P) X^T X, not centered: near 1 where the mean dominates.

    A share in [1/min(points, width), 1]; NaN where all points are 0. Source: as for `anisotropy`,
    without centering.
    """
    return _top_share(x)


@public_metric()
def participation_ratio(x: ArrayLike) -> Scalar:
    """Effective number of principal directions: (sum lambda)^2 / sum lambda^2.

    A number of directions in [1, min(points, width)], biased low for few points; NaN where all
    points are equal. Source: the inverse participation ratio of physics; Gao et al. 2017 for
    neurons.
    """
    return spectrum.participation_ratio_of_points(x)


@public_metric()
def participation_ratio_corrected(x: ArrayLike) -> Scalar:
    """Participation ratio of the population, without the bias that few points cause.

    Assumes independent points. A number of directions above 0, by chance even above the width; NaN
    for fewer than 4 points, or where only rounding is left. Source: Chun et al. 2025; the
    closed form in moments is derived here.
    """
    return spectrum.participation_ratio_corrected(_spectrum(x))


@public_metric()
def effective_rank(x: ArrayLike) -> Scalar:
    """Effective rank, exp(-sum p ln p), of the eigenvalue shares p of the covariance.

    A number of directions in [1, min(points, width)]; NaN where all points are equal. Source: Roy
    and Vetterli 2007, applied to the covariance of the cloud.
    """
    return spectrum.effective_rank(_spectrum(x))


@public_metric(about_mean=False)
def rankme(x: ArrayLike) -> Scalar:
    """RankMe: exp(-sum p ln p), p = s / sum(s) + 1e-7, s the singular values of x, not centered.

    A mean far from the origin counts as one more direction, the largest: see `rankme_centered`. A
    number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are 0. Source:
    Garrido et al. 2023.
    """
    return spectrum.perplexity_of_singular_values(jnp.linalg.svd(x, compute_uv=False))


@public_metric()
def rankme_centered(x: ArrayLike) -> Scalar:
    """RankMe of the centered cloud: the mean does not count as a direction.

    A number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are equal.
    Source: Garrido et al. 2023, who do not center; the centering is this project's.
    """
    return spectrum.rankme_centered(_spectrum(x))


@public_metric()
def stable_rank(x: ArrayLike) -> Scalar:
    """Sum of the eigenvalues over the largest: 1 / `anisotropy`.

    A number of directions in [1, min(points, width)]; NaN where all points are equal. Source:
    Rudelson and Vershynin 2007, who call it the numerical rank.
    """
    return 1.0 / _top_share(centered(x))


@public_metric()
def isoscore(x: ArrayLike) -> Scalar:
    """IsoScore: 1 for equal variance in all directions, 0 for all variance in one direction.

    (PR - 1) / (D - 1), PR the `participation_ratio`: the closed form of the algorithm of Rudman et
    al. 2022. A number in [0, 1]; NaN where all points are equal, or width is 1.
    """
    return (spectrum.participation_ratio_of_points(x) - 1.0) / (x.shape[1] - 1.0)


@public_metric()
def isoscore_star(x: ArrayLike) -> Scalar:
    """IsoScore* of one cloud: `isoscore` of the covariance shrunk toward an isotropic one.

    A number in [0, 1], with less bias for few points than `isoscore`. NaN where all points are
    equal, width is 1, or one or two points hold most of the variance. Source: Rudman and
    Eickhoff 2024; the weight of Ledoit and Wolf 2004 is this project's choice.
    """
    return spectrum.isoscore_shrunk(_spectrum(x))


@public_metric()
def alpha_req(x: ArrayLike) -> Scalar:
    """alpha-ReQ: the exponent alpha of lambda_i ~ i^-alpha, fitted to eigenvalues 4 to 100.

    An exponent, 0 or above; NaN where fewer than 3 eigenvalues can be fitted. Source: Agrawal et
    al. 2022, with the weights 1/i of their code.
    """
    return spectrum.alpha_req(_spectrum(x)).exponent


@public_metric()
def twonn(x: ArrayLike) -> Scalar:
    """Intrinsic dimension by TwoNN: a line through the origin fits the smallest 90 % of the ratios.

    Copies of a point count once. Biased low above about 15 dimensions: compare with a Gaussian
    cloud of the same spectrum (`anisoscope.measure` does). A dimension above 0; NaN for fewer
    than 3 distinct points, inf for a lattice. Source: Facco et al. 2017.
    """
    return dimension.twonn(_search(x, 2))


@public_metric()
def twonn_mle(x: ArrayLike) -> Scalar:
    """TwoNN by maximum likelihood, from all ratios: (n - 1) / sum ln(r2/r1).

    A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice. Source: Facco et
    al. 2017, as in DADApy ("ml").
    """
    return dimension.twonn_mle(_search(x, 2))


@public_metric()
def twonn_microscope(x: ArrayLike) -> Scalar:
    """TwoNN as the code of The Shape of Learning computes it: the smallest 20 % of the ratios.

    Copies are neighbors like others, which pushes the dimension up. A dimension above 0, too high
    where points have copies; NaN for fewer than 5 ratios. Source: the published code of Razzhigaev
    et al. 2024.
    """
    return dimension.twonn_microscope(_search(x, 2)).dimension


@public_metric(least_k=3)
def levina_bickel(x: ArrayLike, k: int = 20) -> Scalar:
    """Intrinsic dimension from k neighbors: n / sum 1/d_i, d_i the most likely one at point i.

    A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice. Source: Levina and
    Bickel 2004; inverses are averaged, after MacKay and Ghahramani 2005.
    """
    return scale.levina_bickel(_search(x, k), k)


@public_metric()
def gride(x: ArrayLike, k: int = 2) -> Scalar:
    """Intrinsic dimension at a scale: most likely for ratios of the 2k-th to the k-th distance.

    A larger k is a larger scale, with less noise and more curvature. A dimension above 0; NaN for
    fewer than 2k + 1 distinct points, inf for a lattice. Source: Denti et al. 2022.
    """
    return scale.gride(_search(x, 2 * k), k)


@public_metric()
def correlation_dimension(x: ArrayLike) -> Scalar:
    """Correlation dimension: growth of the share of pairs nearer than r between two radii.

    The radii are the medians of the distances to the 10th and to the 20th neighbor. A dimension, 0
    or above; NaN for fewer than 21 distinct points. Its derivative is 0 or NaN. Source: Grassberger
    and Procaccia 1983, with the radii of scikit-dimension's CorrInt.
    """
    return estimators.correlation_dimension(x, nearest_neighbors(x, estimators.FARTHER))


@public_metric()
def ph_dimension(x: ArrayLike) -> Scalar:
    """Dimension by persistent homology of degree 0: the growth of the minimum spanning tree.

    A dimension above 0, noisy; NaN for fewer than 64 points. Source: Birdal et al. 2021,
    Schweinhart 2020; slope over P/8 to P points, a reconstruction.

    Raises:
        ValueError: x is not a matrix of real numbers with two points or more, or has more than
            40,000 points, whose distances take 20 GB.
    """
    if len(x) > MOST_PAIRED:
        raise ValueError(
            f"x has {len(x):,} points, and the distances of all pairs are held at once; pass at most "
            f"{MOST_PAIRED:,}"
        )
    return estimators.ph_dimension(x)


@public_metric(about_mean=False)
def mean_cosine(x: ArrayLike) -> Scalar:
    """Mean cosine over all pairs of different points, not centered.

    A cosine in [-1/(points - 1), 1]; zero vectors are left out; NaN for fewer than two others.
    Source: the anisotropy of Ethayarajh 2019 and Godey et al. 2024, who sample pairs; exact here.
    """
    return similarity.mean_cosine(x)


@public_metric(about_mean=False, any_size=False)
def drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector, |E x|.

    A number in the units of x, in [0, `mean_norm`]. Source: Godey et al. 2024.
    """
    return similarity.drift(x)


@public_metric(about_mean=False)
def relative_drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector over the root mean square norm, |E x| / sqrt(E |x|^2).

    A share in [0, 1]: its square is the share of the mean in the second moment. NaN where all
    points are 0. Source: this project, to compare drifts of layers and models.
    """
    return similarity.relative_drift(x)


@public_metric(about_mean=False, any_size=False)
def mean_norm(x: ArrayLike) -> Scalar:
    """Mean norm, E |x|: the scale that a drift is compared with.

    A number in the units of x, 0 or above.
    """
    return similarity.mean_norm(x)


@public_metric()
def curvature(x: ArrayLike) -> Scalar:
    """Mean angle between successive steps of a path: rows are the tokens of one text, in order.

    An angle in radians, [0, pi]: 0 for a straight path, pi/2 for independent steps, 2 pi/3 for
    independent points. Angles at repeated points are left out; NaN where none is left. Source:
    Hosseini and Fedorenko 2023.
    """
    points = jnp.arange(len(x))
    turns = windows.turns(x, jnp.zeros_like(points), points)
    return jnp.where(turns.valid_P, turns.angle_P, 0.0).sum() / turns.valid_P.sum()


def _top_share(x_PD: Array) -> Array:
    """Compute the top eigenvalue's share of the trace, with a gradient.

    `spectrum.anisotropy_uncentered` has a bisection, which has no gradient.
    """
    square_EE = small_gram(scale_to_unit(x_PD))
    return jnp.minimum(eigh(square_EE)[0][-1] / jnp.trace(square_EE), 1.0)  # rounding


def _spectrum(x_PD: Array) -> spectrum.Spectrum:
    return jax.tree.map(lambda field_R: field_R[0], spectrum.spectrum(x_PD))


def _search(x_PD: Array, count: int) -> Neighbors:
    """Find neighbors; indices have no gradient, distances have that of the subtraction."""
    neighbors = jax.lax.stop_gradient(nearest_neighbors(jax.lax.stop_gradient(x_PD), count))
    square_PC = jnp.square(x_PD[:, None] - x_PD[neighbors.index_PC]).sum(axis=-1)
    distinct_PC = square_PC > 0
    recomputed_PC = jnp.where(distinct_PC, jnp.sqrt(jnp.where(distinct_PC, square_PC, 1.0)), 0.0)
    return neighbors._replace(
        distance_PC=neighbors.distance_PC + (recomputed_PC - jax.lax.stop_gradient(recomputed_PC))
    )
