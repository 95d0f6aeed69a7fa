"""One number from one matrix of vectors: the metrics as a user calls them.

Every function takes a matrix of NumPy, JAX, PyTorch, pandas or xarray, computes in float32 (also
with `jax_enable_x64`), and returns a JAX scalar. Under `jax.jit`, `jax.vmap` and `jax.grad` they
behave as JAX functions do. What several of them share (one spectrum, one search for neighbours) is
shared by `anisoscope.measure`, which also adds intervals and null models.

All raise ValueError, in one line, for what `anisoscope.measure` refuses (masked or missing numbers,
types that are no real numbers, what float32 would lose) and for fewer than two points; of two
matrices, where they have different numbers or labels of points; of k neighbours, where there are
not so many others. Frames are paired by their labels. What is refused cannot be raised of a traced
array: the value is NaN.

Metrics that do not depend on the origin subtract the mean of float64 and integers before they go to
float32; those that do not depend on the size of the vectors first take it to a range that float32
holds.
"""

from jaxtyping import Array, Float

from anisoscope.metrics import comparison, dimension, prepare, scale, similarity, spectrum
from anisoscope.metrics.cloud import centred
from anisoscope.metrics.prepare import ArrayLike

Scalar = Float[Array, ""]

_anisotropy = prepare.compiled(lambda x_PD: prepare.top_share(centred(x_PD)))
_anisotropy_uncentred = prepare.compiled(prepare.top_share)
_participation_ratio = prepare.compiled(spectrum.participation_ratio_of_points)
_participation_ratio_corrected = prepare.of_spectrum(spectrum.participation_ratio_corrected)
_effective_rank = prepare.of_spectrum(spectrum.effective_rank)
_rankme = prepare.compiled(spectrum.rankme_of_points)
_rankme_centered = prepare.of_spectrum(spectrum.rankme_centered)
_isoscore = prepare.compiled(spectrum.isoscore_of_points)
_alpha_req = prepare.of_spectrum(lambda one: spectrum.alpha_req(one).exponent)
_twonn = prepare.of_two_neighbours(dimension.twonn)
_twonn_mle = prepare.of_two_neighbours(dimension.twonn_mle)
_twonn_microscope = prepare.of_two_neighbours(
    lambda neighbours: dimension.twonn_microscope(neighbours).dimension
)
_mean_cosine = prepare.compiled(similarity.mean_cosine)
_drift = prepare.compiled(similarity.drift)
_mean_norm = prepare.compiled(similarity.mean_norm)
_cka = prepare.compiled(lambda x_PD, y_PE: comparison.linear_cka(x_PD, y_PE)[0])
_cka_unbiased = prepare.compiled(lambda x_PD, y_PE: comparison.linear_cka_unbiased(x_PD, y_PE)[0])
_levina_bickel = prepare.compiled(lambda x_PD, k: scale.levina_bickel(prepare.search(x_PD, k), k))
_neighbourhood_overlap = prepare.compiled(prepare.overlap)


def anisotropy(x: ArrayLike) -> Scalar:
    """Share of the variance along the top principal direction, as in The Shape of Learning.

    Args:
        x: (points, width).

    Returns:
        lambda_1 / sum(lambda) of the covariance, in [1/min(points, width), 1]; NaN where all points
        are equal.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{anisotropy(x):.2f}")
    0.74
    """
    return _anisotropy(prepare.matrix(x))


def anisotropy_uncentred(x: ArrayLike) -> Scalar:
    """Share of the top direction of (1/P) X^T X, without centring: 1 where the mean is all there
    is.

    Args:
        x: (points, width).

    Returns:
        A number in (0, 1]; NaN where all points are 0.
    """
    return _anisotropy_uncentred(prepare.matrix(x, about_mean=False))


def participation_ratio(x: ArrayLike) -> Scalar:
    """How many principal directions share the variance: (sum lambda)^2 / sum lambda^2.

    Args:
        x: (points, width).

    Returns:
        A number in [1, min(points, width)]; biased low for few points. NaN where all points are
        equal.

    >>> import numpy as np
    >>> print(f"{participation_ratio(np.eye(5)):.2f}")
    4.00
    """
    return _participation_ratio(prepare.matrix(x))


def participation_ratio_corrected(x: ArrayLike) -> Scalar:
    """The participation ratio of the population that the points are drawn from: without the bias of
    few points.

    Args:
        x: (points, width), points independent.

    Returns:
        A number above 0, above the width by chance; NaN for fewer than 4 points, or where rounding
        is all that is left.
    """
    return _participation_ratio_corrected(prepare.matrix(x))


def effective_rank(x: ArrayLike) -> Scalar:
    """exp of the entropy of the eigenvalue shares of the covariance (Roy and Vetterli 2007, of the
    centered cloud).

    Args:
        x: (points, width).

    Returns:
        A number in [1, min(points, width)]; NaN where all points are equal.
    """
    return _effective_rank(prepare.matrix(x))


def rankme(x: ArrayLike) -> Scalar:
    """RankMe (Garrido et al. 2023): exp(-sum p ln p), p = s / sum(s) + 1e-7, s the singular values
    of x, not centered.

    A mean far from the origin counts as one more direction, the largest: see `rankme_centered`.

    Args:
        x: (points, width).

    Returns:
        A number from 1 to min(points, width), up to 1e-5; NaN where all points are 0.

    >>> import numpy as np
    >>> print(f"{rankme(np.eye(6)):.2f}, centered {rankme_centered(np.eye(6)):.2f}")
    6.00, centered 5.00
    """
    return _rankme(prepare.matrix(x, about_mean=False))


def rankme_centered(x: ArrayLike) -> Scalar:
    """RankMe of the centered cloud: the mean is no direction. The variable `rankme_centered` of
    `anisoscope.measure`.

    Args:
        x: (points, width).

    Returns:
        A number from 1 to min(points, width), up to 1e-5; NaN where all points are equal.
    """
    return _rankme_centered(prepare.matrix(x))


def isoscore(x: ArrayLike) -> Scalar:
    """IsoScore (Rudman et al. 2022): 1 for equal variance in all directions, 0 for all of it in
    one.

    Args:
        x: (points, width).

    Returns:
        A number in [0, 1]; NaN where all points are equal.
    """
    return _isoscore(prepare.matrix(x))


def alpha_req(x: ArrayLike) -> Scalar:
    """alpha-ReQ (Agrawal et al. 2022): the exponent alpha of lambda_i ~ i^-alpha, fitted to
    eigenvalues 4 to 100.

    Args:
        x: (points, width).

    Returns:
        The exponent; NaN where there are too few eigenvalues to fit.
    """
    return _alpha_req(prepare.matrix(x))


def twonn(x: ArrayLike) -> Scalar:
    """Intrinsic dimension by TwoNN (Facco et al. 2017): a line through the origin, of the smallest
    90 % of the ratios.

    Copies of a point count once. Low above about 15 dimensions: compare with a Gaussian cloud of
    the same spectrum (`anisoscope.measure` does).

    Args:
        x: (points, width).

    Returns:
        A number above 0; NaN for fewer than 3 distinct points.

    >>> import numpy as np
    >>> sheet = np.random.default_rng(0).uniform(size=(2000, 2)) @ np.random.default_rng(1).standard_normal((2, 50))
    >>> print(f"{twonn(sheet):.1f}")
    2.0
    """
    return _twonn(prepare.matrix(x))


def twonn_mle(x: ArrayLike) -> Scalar:
    """TwoNN by maximum likelihood, from all ratios: (n - 1) / sum ln(r2/r1).

    Args:
        x: (points, width).

    Returns:
        A number above 0; NaN for fewer than 3 distinct points.
    """
    return _twonn_mle(prepare.matrix(x))


def twonn_microscope(x: ArrayLike) -> Scalar:
    """TwoNN as the code of The Shape of Learning computes it: the smallest 20 % of the ratios,
    copies included.

    Args:
        x: (points, width).

    Returns:
        A number above 0, too high where points have copies; NaN for fewer than 5 ratios.
    """
    return _twonn_microscope(prepare.matrix(x))


def levina_bickel(x: ArrayLike, k: int = 20) -> Scalar:
    """Intrinsic dimension by Levina and Bickel (2004), from k neighbours, averaged as MacKay and
    Ghahramani do.

    Args:
        x: (points, width).
        k: neighbours of a point, at least 3.

    Returns:
        A number above 0; NaN for too few distinct points.
    """
    matrix_PD = prepare.matrix(x)
    prepare.check_neighbours(k, 3, matrix_PD.shape[0])
    return _levina_bickel(matrix_PD, k=k)


def mean_cosine(x: ArrayLike) -> Scalar:
    """Mean cosine over all pairs of different points, not centred: the anisotropy of Godey et al.
    2024, exactly.

    Args:
        x: (points, width).

    Returns:
        A number in [-1/(points - 1), 1]; zero vectors are left out.

    >>> import numpy as np
    >>> print(f"{mean_cosine(np.random.default_rng(0).standard_normal((500, 8)) + 2):.2f}")
    0.81
    """
    return _mean_cosine(prepare.matrix(x, about_mean=False))


def drift(x: ArrayLike) -> Scalar:
    """|E x|, the norm of the mean vector (Godey et al. 2024).

    Args:
        x: (points, width).

    Returns:
        A number in the units of x, from 0 to the mean norm.
    """
    return _drift(prepare.matrix(x, about_mean=False, any_size=False))


def mean_norm(x: ArrayLike) -> Scalar:
    """E |x|, the mean norm: what a drift is compared with.

    Args:
        x: (points, width).

    Returns:
        A number in the units of x.
    """
    return _mean_norm(prepare.matrix(x, about_mean=False, any_size=False))


def cka(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA (Kornblith et al. 2019): how alike two representations of the same points are.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.

    Returns:
        A number in [0, 1], 1 up to rotation, scale and shift. Independent clouds lie above 0: see
        `cka_unbiased`.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((100, 5))
    >>> print(f"{cka(x, 3 * x[:, ::-1] + 1):.2f}")
    1.00
    """
    return _cka(*prepare.pair(x, y))


def cka_unbiased(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA with the unbiased HSIC (Nguyen et al. 2021): about 0 for independent clouds of
    independent points.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.

    Returns:
        A number in [-1, 1]; NaN for fewer than 4 points.
    """
    return _cka_unbiased(*prepare.pair(x, y))


def neighbourhood_overlap(x: ArrayLike, y: ArrayLike, k: int = 10) -> Scalar:
    """Share of a point's k nearest in x that are among its k nearest in y, on average.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.
        k: neighbours of a point.

    Returns:
        A number in [0, 1]; about k / points for independent clouds.
    """
    x_PD, y_PE = prepare.pair(x, y)
    prepare.check_neighbours(k, 1, x_PD.shape[0])
    return _neighbourhood_overlap(x_PD, y_PE, k=k)
