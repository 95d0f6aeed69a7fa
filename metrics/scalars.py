"""The metrics as users call them: one number from one matrix of vectors.

Every function takes a matrix of NumPy, JAX, PyTorch, pandas or xarray, computes in float32 (also
with `jax_enable_x64`), and returns a JAX scalar. Under `jax.jit`, `jax.vmap` and `jax.grad` they
behave as JAX functions do; `linearity`, `rsa` and `procrustes` have a derivative of NaN where
singular values are equal. What several of them share (one spectrum, one search for neighbors) is
shared by `anisoscope.measure`, which also adds intervals and null models.

All raise ValueError, in one line, for what `anisoscope.measure` refuses (masked or missing numbers,
types that are not real numbers, differences that float32 would lose) and for fewer than two points.
Two matrices must have the same number and labels of points, and k neighbors need more than k
points. Frames are paired by their labels. A traced array cannot raise: its value is NaN.

Metrics that do not depend on the origin subtract the mean of float64 and integers before they go to
float32; those that do not depend on the size of the vectors first take it to a range that float32
holds.
"""

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics import (
    alignment,
    comparison,
    dimension,
    imbalance,
    lapack,
    scale,
    similarity,
    spectrum,
)
from anisoscope.metrics.cloud import centered, product, scale_to_unit
from anisoscope.metrics.convert import ArrayLike, matrix, matrix_pair
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.linear_map import linearity as explain_variance
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors

Scalar = Float[Array, ""]
# sections of docstrings that do not differ between metrics
ARGS = "Args:\n    x: (points, width), any unit.\n\n"
RAISES = "Raises:\n    ValueError: x is no matrix of real numbers with two points or more.\n\n"
PAIR_ARGS = f"{ARGS.rstrip()}\n    y: (points, other width), the same points in the same order.\n\n"
PAIR_RAISES = (
    "Raises:\n    ValueError: x or y is no matrix of real numbers, or their points differ.\n\n"
)
NO_ORIGIN = RAISES.rstrip(".\n") + (
    ", or so far from the\n        origin that float32 loses what its points differ in.\n\n"
)


def _metric(
    about_mean: bool = True, any_size: bool = True, least_k: int = 1
) -> Callable[[Callable[..., Array]], Callable[..., Scalar]]:
    """Make the decorator of a metric, whose body reads matrices in float32.

    It checks and converts the matrices and k, compiles once for each shape and k, in float32
    whatever `jax_enable_x64` is, and completes the docstring. Products keep all their digits.

    Args:
        about_mean: The metric does not depend on the origin.
        any_size: The metric does not depend on the size of the vectors.
        least_k: Fewest neighbors, where the metric has an argument k.
    """

    def decorate(read: Callable[..., Array]) -> Callable[..., Scalar]:
        signature = inspect.signature(read)

        @functools.partial(jax.jit, static_argnames=("k",))
        def compute(*matrices: Array, **k: int) -> Array:
            with jax.default_matmul_precision("highest"):
                return read(*matrices, **k)

        @functools.wraps(read)
        def metric(*args: ArrayLike | int, **kwargs: ArrayLike | int) -> Scalar:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = bound.arguments
            if "y" in values:
                matrices = matrix_pair(values["x"], values["y"])
            else:
                matrices = (matrix(values["x"], about_mean, any_size),)
            k = {"k": values["k"]} if "k" in values else {}
            points = matrices[0].shape[0]
            if k and not least_k <= k["k"] < points:
                raise ValueError(
                    f"k is {k['k']}; pass {least_k} to {points - 1} for {points} points"
                )
            traced = any(isinstance(x, jax.core.Tracer) for x in matrices)
            with jax.enable_x64(False):
                if jax.default_backend() != "cpu" or traced:
                    return compute(*matrices, **k)
                with lapack.threads_for(min(matrices[0].shape)):
                    return jax.block_until_ready(compute(*matrices, **k))

        text, raises = inspect.getdoc(read), RAISES if about_mean else NO_ORIGIN
        args, raises = (PAIR_ARGS, PAIR_RAISES) if "y" in signature.parameters else (ARGS, raises)
        text = text if "Args:" in text else text.replace("Returns:", f"{args}Returns:", 1)
        metric.__doc__ = text if "Raises:" in text else text.replace(">>>", f"{raises}>>>", 1)
        return metric

    return decorate


@_metric()
def anisotropy(x: ArrayLike) -> Scalar:
    """Share of the variance along the top principal direction: lambda_1 / sum(lambda).

    Source: Razzhigaev et al. 2024, The Shape of Learning.

    Returns:
        A share of the covariance's trace, in [1/min(points, width), 1]; NaN where all points are
        equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{anisotropy(x):.2f}")
    0.74
    """
    return _top_share(centered(x))


@_metric(about_mean=False)
def anisotropy_uncentered(x: ArrayLike) -> Scalar:
    """Share of the top direction of (1/P) X^T X, without centering: near 1 where the mean is all.

    Source: as `anisotropy`, of the cloud as it is.

    Returns:
        A share in [1/min(points, width), 1]; NaN where all points are 0.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{anisotropy_uncentered(x + [0, 0, 0, 100]):.2f}")
    1.00
    """
    return _top_share(x)


@_metric()
def participation_ratio(x: ArrayLike) -> Scalar:
    """Effective number of principal directions: (sum lambda)^2 / sum lambda^2.

    Source: the inverse participation ratio of physics; Gao et al. 2017 for neurons.

    Returns:
        A number of directions in [1, min(points, width)], biased low for few points; NaN where all
        points are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{participation_ratio(np.eye(5)):.2f}, {participation_ratio(x):.2f}")
    4.00, 1.74
    """
    return spectrum.participation_ratio_of_points(x)


@_metric()
def participation_ratio_corrected(x: ArrayLike) -> Scalar:
    """Participation ratio of the population, without the bias of few points.

    Source: Chun et al. 2025; the closed form in moments is derived here.

    Args:
        x: (points, width), any unit; independent points.

    Returns:
        A number of directions above 0, above the width by chance; NaN for fewer than 4 points, or
        where rounding is all that is left.

    >>> import numpy as np
    >>> few = np.random.default_rng(0).standard_normal((50, 100))
    >>> print(f"{participation_ratio(few):.0f}, corrected {participation_ratio_corrected(few):.0f}")
    33, corrected 100
    """
    return spectrum.participation_ratio_corrected(_spectrum(x))


@_metric()
def effective_rank(x: ArrayLike) -> Scalar:
    """Effective rank, exp(-sum p ln p), of the eigenvalue shares p of the covariance.

    Source: Roy and Vetterli 2007, of the covariance of the cloud.

    Returns:
        A number of directions in [1, min(points, width)]; NaN where all points are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{effective_rank(x):.2f}")
    2.34
    """
    return spectrum.effective_rank(_spectrum(x))


@_metric(about_mean=False)
def rankme(x: ArrayLike) -> Scalar:
    """RankMe: exp(-sum p ln p), p = s / sum(s) + 1e-7, s the singular values of x, not centered.

    A mean far from the origin counts as one more direction, the largest: see `rankme_centered`.
    Source: Garrido et al. 2023.

    Returns:
        A number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are 0.

    >>> import numpy as np
    >>> print(f"{rankme(np.eye(6)):.2f}, centered {rankme_centered(np.eye(6)):.2f}")
    6.00, centered 5.00
    """
    return spectrum.perplexity_of_singular_values(jnp.linalg.svd(x, compute_uv=False))


@_metric()
def rankme_centered(x: ArrayLike) -> Scalar:
    """RankMe of the centered cloud: the mean is no direction.

    Source: Garrido et al. 2023, who do not center; the centering is this project's.

    Returns:
        A number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are
        equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{rankme_centered(x):.2f}")
    3.48
    """
    return spectrum.rankme_centered(_spectrum(x))


@_metric()
def stable_rank(x: ArrayLike) -> Scalar:
    """Sum of the eigenvalues over the largest: 1 / `anisotropy`.

    Source: Rudelson and Vershynin 2007, as the numerical rank.

    Returns:
        A number of directions in [1, min(points, width)]; NaN where all points are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{stable_rank(x):.2f}")
    1.34
    """
    return 1.0 / _top_share(centered(x))


@_metric()
def isoscore(x: ArrayLike) -> Scalar:
    """IsoScore: 1 for equal variance in all directions, 0 for all of it in one.

    (PR - 1) / (D - 1), PR the `participation_ratio`: the closed form of the algorithm of Rudman et
    al. 2022.

    Args:
        x: (points, width), any unit; the score depends on the basis only by its width.

    Returns:
        A number in [0, 1]; NaN where all points are equal, or of width 1.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{isoscore(x):.2f}")
    0.25
    """
    return (spectrum.participation_ratio_of_points(x) - 1.0) / (x.shape[1] - 1.0)


@_metric()
def alpha_req(x: ArrayLike) -> Scalar:
    """alpha-ReQ: the exponent alpha of lambda_i ~ i^-alpha, fitted to eigenvalues 4 to 100.

    Source: Agrawal et al. 2022, with the weights 1/i of their code.

    Returns:
        An exponent, 0 or above; NaN where fewer than 3 eigenvalues can be fitted.

    >>> import numpy as np
    >>> steep = np.random.default_rng(0).standard_normal((4000, 50)) / np.arange(1, 51)
    >>> print(f"{alpha_req(steep):.1f}")
    2.0
    """
    return spectrum.alpha_req(_spectrum(x)).exponent


@_metric()
def twonn(x: ArrayLike) -> Scalar:
    """Intrinsic dimension by TwoNN: a line through the origin, of the smallest 90 % of the ratios.

    Copies of a point count once. Low above about 15 dimensions: compare with a Gaussian cloud of
    the same spectrum (`anisoscope.measure` does). Source: Facco et al. 2017.

    Returns:
        A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice.

    >>> import numpy as np
    >>> plane = np.random.default_rng(1).standard_normal((2, 50))
    >>> sheet = np.random.default_rng(0).uniform(size=(2000, 2)) @ plane
    >>> print(f"{twonn(sheet):.1f}")
    2.0
    """
    return dimension.twonn(_search(x, 2))


@_metric()
def twonn_mle(x: ArrayLike) -> Scalar:
    """TwoNN by maximum likelihood, from all ratios: (n - 1) / sum ln(r2/r1).

    Source: Facco et al. 2017, as in DADApy ("ml").

    Returns:
        A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice.

    >>> import numpy as np
    >>> print(f"{twonn_mle(np.random.default_rng(0).uniform(size=(2000, 3))):.1f}")
    2.9
    """
    return dimension.twonn_mle(_search(x, 2))


@_metric()
def twonn_microscope(x: ArrayLike) -> Scalar:
    """TwoNN as the code of The Shape of Learning computes it: the smallest 20 % of the ratios.

    Copies are neighbors like others, which pushes the dimension up. Source: the published code of
    Razzhigaev et al. 2024.

    Returns:
        A dimension above 0, too high where points have copies; NaN for fewer than 5 ratios.

    >>> import numpy as np
    >>> print(f"{twonn_microscope(np.random.default_rng(0).uniform(size=(2000, 3))):.1f}")
    3.1
    """
    return dimension.twonn_microscope(_search(x, 2)).dimension


@_metric(least_k=3)
def levina_bickel(x: ArrayLike, k: int = 20) -> Scalar:
    """Intrinsic dimension from k neighbors: n / sum 1/d_i, d_i the likeliest of each point.

    Source: Levina and Bickel 2004; inverses are averaged, after MacKay and Ghahramani 2005.

    Args:
        x: (points, width), any unit.
        k: neighbors of a point, at least 3.

    Returns:
        A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice.

    Raises:
        ValueError: x is no matrix of real numbers, or has not more than k points; k is below 3.

    >>> import numpy as np
    >>> print(f"{levina_bickel(np.random.default_rng(0).uniform(size=(2000, 3))):.1f}")
    2.9
    """
    return scale.levina_bickel(_search(x, k), k)


@_metric(about_mean=False)
def mean_cosine(x: ArrayLike) -> Scalar:
    """Mean cosine over all pairs of different points, not centered.

    Source: the anisotropy of Ethayarajh 2019 and Godey et al. 2024, who sample pairs; exact here.

    Returns:
        A cosine in [-1/(points - 1), 1]; zero vectors are left out; NaN for fewer than two others.

    >>> import numpy as np
    >>> print(f"{mean_cosine(np.random.default_rng(0).standard_normal((500, 8)) + 2):.2f}")
    0.81
    """
    return similarity.mean_cosine(x)


@_metric(about_mean=False, any_size=False)
def drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector, |E x|.

    Source: Godey et al. 2024.

    Returns:
        A number in the units of x, in [0, `mean_norm`].

    Raises:
        ValueError: as `anisotropy_uncentered`; or the largest coordinate is so small or large that
            float32 cannot hold its square.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{drift(x + 1):.1f}")
    2.0
    """
    return similarity.drift(x)


@_metric(about_mean=False)
def relative_drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector over the root mean square norm, |E x| / sqrt(E |x|^2).

    Source: this project, to compare drifts of layers and models.

    Returns:
        A share in [0, 1]: its square is the share of the second moment that the mean has. NaN where
        all points are 0.

    >>> import numpy as np
    >>> print(f"{relative_drift(np.random.default_rng(0).standard_normal((500, 8)) + 2):.2f}")
    0.89
    """
    return similarity.relative_drift(x)


@_metric(about_mean=False, any_size=False)
def mean_norm(x: ArrayLike) -> Scalar:
    """Mean norm, E |x|: the scale that a drift is compared with.

    Returns:
        A number in the units of x, 0 or above.

    >>> import numpy as np
    >>> print(f"{mean_norm(np.array([[3.0, 4.0], [0.0, 1.0]])):.1f}")
    3.0
    """
    return similarity.mean_norm(x)


@_metric()
def cka(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA: the similarity of two representations of the same points.

    |X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), X and Y centered. Source: Kornblith et al. 2019.

    Returns:
        A number in [0, 1], 1 up to rotation, scale and shift. Independent clouds lie above 0: see
        `cka_unbiased`. NaN where all points of x or of y are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{cka(x, 3 * x[:, ::-1] + 1):.2f}")
    1.00
    """
    return comparison.ckas(x, y).biased[0]


@_metric()
def cka_unbiased(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA with the unbiased HSIC: about 0 for independent clouds of independent points.

    Source: Song et al. 2012 (HSIC), Nguyen et al. 2021 (in CKA).

    Returns:
        A number in [-1, 1]; NaN for fewer than 4 points, or where `cka` is NaN.

    >>> import numpy as np
    >>> a, b = np.random.default_rng(0).standard_normal((2, 100, 200))
    >>> print(f"{cka(a, b):.1f}, unbiased {abs(cka_unbiased(a, b)):.1f}")
    0.7, unbiased 0.0
    """
    return comparison.ckas(x, y).unbiased[0]


@_metric()
def linearity(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Share of the variance of y that the best linear map of x explains, 1 - |X~ A - Y~|_F^2.

    Source: Razzhigaev et al. 2024, Your Transformer is Secretly Linear.

    Returns:
        A share in [0, 1]; unrelated clouds have the rank of x over points - 1. NaN where all points
        of x or of y are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4))
    >>> print(f"{linearity(x, x @ np.ones((4, 2)) + 1):.2f}")
    1.00
    """
    return explain_variance(x, y).score[0]


@_metric()
def rsa(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Correlation, over all pairs of points, of their squared distances in x and in y.

    Source: Kriegeskorte et al. 2008; distances and correlation as rsatoolbox's euclidean and corr.

    Returns:
        A correlation in [-1, 1], 1 up to rotation, scale and shift; about 0 for independent clouds.
        NaN where all points, or all distances, of x or of y are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{rsa(x, 3 * x[:, ::-1] + 1):.2f}")
    1.00
    """
    return alignment.alignments(x, y).rsa[0]


@_metric()
def procrustes(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Cosine of x and y after the best rotation: |X^T Y|_* / (|X|_F |Y|_F), X and Y centered.

    Source: Schoenemann 1966; as a similarity in Williams et al. 2021.

    Returns:
        A number in [0, 1], 1 up to rotation, scale and shift; far above 0 for independent clouds
        unless points far outnumber widths. NaN where all points of x or of y are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{procrustes(x, 3 * x[:, ::-1] + 1):.2f}")
    1.00
    """
    return alignment.alignments(x, y).procrustes[0]


@_metric()
def information_imbalance(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Mean rank in y of the point nearest in x, times 2 / points: does x predict nearness in y?

    Source: Glielmo et al. 2022; copies of a point count once, a rule of this project.

    Returns:
        A number in [2/points, 2), 1 on average for unrelated clouds, near 0 where x predicts y. Not
        symmetric.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((500, 4))
    >>> print(f"{information_imbalance(x, x[:, :1]):.1f}, {information_imbalance(x[:, :1], x):.1f}")
    0.2, 0.7
    """
    nearest = comparison.select_nearest(nearest_neighbors(x, 2), 1)
    nearest_1P = nearest.index_PC[None, :, 0]
    return imbalance.information_imbalance(nearest_1P, nearest.first_P[None], y)[0]


@_metric(least_k=1)
def neighbor_overlap(x: ArrayLike, y: ArrayLike, k: int = 10) -> Scalar:
    """Share of a point's k nearest in x that are among its k nearest in y, on average.

    Source: Doimo et al. 2020; copies of a point count once, a rule of this project.

    Args:
        x: (points, width), any unit.
        y: (points, other width), the same points in the same order.
        k: neighbors of a point.

    Returns:
        A share in [0, 1]; about k / points for independent clouds. NaN where no point has k
        neighbors in both.

    Raises:
        ValueError: as `cka`; or there are not more than k points.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{neighbor_overlap(x, 3 * x):.2f}")
    1.00
    """
    nearest = (comparison.select_nearest(nearest_neighbors(z, max(k, 2)), k) for z in (x, y))
    return comparison.neighbor_overlap(*nearest)


def _top_share(x_PD: Array) -> Array:
    """Compute the top eigenvalue's share of the trace, with a gradient.

    `spectrum.anisotropy_uncentered` has a bisection, which has no gradient.
    """
    x_PD = scale_to_unit(x_PD)
    tall = x_PD.shape[0] >= x_PD.shape[1]
    square_EE = product(x_PD.T, x_PD) if tall else product(x_PD, x_PD.T)
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
