"""One number from one matrix of vectors: the metrics as a user calls them.

Every function takes a NumPy, JAX or PyTorch (CPU) matrix, computes in float32, and returns a JAX scalar. Under
`jax.jit`, `jax.vmap` and `jax.grad` they behave as JAX functions do. What several of them share (one spectrum, one
search for neighbours) is shared by `anisoscope.measure`, which also adds intervals and null models.

Metrics that do not depend on the origin subtract the mean of a float64 matrix in float64, before they go to float32.
"""

import functools
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anisoscope.metrics import comparison, dimension, scale, similarity, spectrum
from anisoscope.metrics.cloud import eigh, of_unit_size
from anisoscope.metrics.neighbours import Neighbours, nearest_neighbours


@runtime_checkable
class ArrayLike(Protocol):
    """What NumPy can read: an array of NumPy, JAX or PyTorch, a DataFrame, a memory-mapped file."""

    def __array__(self) -> np.ndarray: ...


Scalar = Float[Array, ""]


def _matrix(x: ArrayLike, about_mean: bool) -> Array:
    """In float32, with the mean subtracted in float64 where that changes nothing but the rounding."""
    if not isinstance(x, jax.Array):
        x = np.asarray(x.detach().float() if hasattr(x, "detach") and str(x.dtype) == "torch.bfloat16" else _plain(x))
        if x.dtype.kind not in "biuf":
            raise ValueError(f"a matrix of real numbers is needed; these are of type {x.dtype}")
        if about_mean and x.dtype == np.float64 and x.ndim == 2:
            x = x - x.mean(axis=0)
    if x.ndim != 2 or x.shape[0] < 2 or x.shape[1] < 1:
        raise ValueError(f"x has shape {x.shape}; (points, width) with at least two points is needed")
    return jnp.asarray(x, jnp.float32)


def _plain(x: Any) -> Any:
    """A PyTorch tensor without its gradient."""
    return x.detach().cpu() if hasattr(x, "detach") else x


def _compiled(read: Callable[..., Array]) -> Callable[..., Array]:
    """Compiled once for each shape and k; float32 products with all their digits on every device."""

    @functools.partial(jax.jit, static_argnames=("k",))
    def compute(*matrices: Array, **k: int) -> Array:
        with jax.default_matmul_precision("highest"):
            return read(*matrices, **k)

    return compute


def _of_spectrum(read: Callable[..., Array]) -> Callable[..., Array]:
    return _compiled(lambda x_PD: read(jax.tree.map(lambda field_R: field_R[0], spectrum.spectrum(x_PD))))


def _of_two_neighbours(read: Callable[..., Array]) -> Callable[..., Array]:
    return _compiled(lambda x_PD: read(_search(x_PD, 2)))


def _top_share(x_PD: Array) -> Array:
    """As `spectrum.anisotropy_uncentred`, whose bisection has no gradient, from a decomposition of its own."""
    x_PD = of_unit_size(x_PD)
    square = x_PD.T @ x_PD if x_PD.shape[0] >= x_PD.shape[1] else x_PD @ x_PD.T
    return eigh(square)[0][-1] / jnp.trace(square)


def _overlap(x_PD: Array, y_PE: Array, k: int) -> Array:
    x, y = (comparison.nearest(nearest_neighbours(cloud_PD, max(k, 2)), k) for cloud_PD in (x_PD, y_PE))
    return comparison.neighbourhood_overlap(x, y)


def _search(x_PD: Array, count: int) -> Neighbours:
    """The neighbours; which they are has no gradient, and their distances have that of the subtraction."""
    found = jax.lax.stop_gradient(nearest_neighbours(jax.lax.stop_gradient(x_PD), count))
    square_PC = jnp.square(x_PD[:, None] - x_PD[found.index_PC]).sum(axis=-1)
    apart_PC = square_PC > 0
    again_PC = jnp.where(apart_PC, jnp.sqrt(jnp.where(apart_PC, square_PC, 1.0)), 0.0)
    return found._replace(distance_PC=found.distance_PC + (again_PC - jax.lax.stop_gradient(again_PC)))


_anisotropy = _of_spectrum(spectrum.anisotropy)
_anisotropy_uncentred = _compiled(_top_share)
_participation_ratio = _of_spectrum(spectrum.participation_ratio)
_participation_ratio_corrected = _of_spectrum(spectrum.participation_ratio_corrected)
_effective_rank = _of_spectrum(spectrum.effective_rank)
_rankme = _of_spectrum(spectrum.rankme)
_isoscore = _of_spectrum(spectrum.isoscore)
_alpha_req = _of_spectrum(lambda one: spectrum.alpha_req(one).exponent)
_twonn = _of_two_neighbours(dimension.twonn)
_twonn_mle = _of_two_neighbours(dimension.twonn_mle)
_twonn_microscope = _of_two_neighbours(lambda found: dimension.twonn_microscope(found).dimension)
_mean_cosine = _compiled(similarity.mean_cosine)
_drift = _compiled(similarity.drift)
_mean_norm = _compiled(similarity.mean_norm)
_cka = _compiled(lambda x_PD, y_PE: comparison.linear_cka(x_PD, y_PE)[0])
_cka_unbiased = _compiled(lambda x_PD, y_PE: comparison.linear_cka_unbiased(x_PD, y_PE)[0])
_levina_bickel = _compiled(lambda x_PD, k: scale.levina_bickel(_search(x_PD, k), k))
_neighbourhood_overlap = _compiled(_overlap)


def anisotropy(x: ArrayLike) -> Scalar:
    """Share of the variance along the top principal direction, as in The Shape of Learning.

    Args:
        x: (points, width).

    Returns:
        lambda_1 / sum(lambda) of the covariance, in [1/min(points, width), 1]; NaN where all points are equal.

    Raises:
        ValueError: x is no matrix of real numbers with two points.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((1000, 4)) * [3, 1, 1, 1]
    >>> print(f"{anisotropy(x):.2f}")
    0.74
    """
    return _anisotropy(_matrix(x, about_mean=True))


def anisotropy_uncentred(x: ArrayLike) -> Scalar:
    """Share of the top direction of (1/P) X^T X, without centring: 1 where the mean is all there is.

    Args:
        x: (points, width).

    Returns:
        A number in (0, 1]; NaN where all points are 0.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _anisotropy_uncentred(_matrix(x, about_mean=False))


def participation_ratio(x: ArrayLike) -> Scalar:
    """How many principal directions share the variance: (sum lambda)^2 / sum lambda^2.

    Args:
        x: (points, width).

    Returns:
        A number in [1, min(points, width)]; biased low for few points. NaN where all points are equal.

    Raises:
        ValueError: x is no matrix of real numbers with two points.

    >>> import numpy as np
    >>> print(f"{participation_ratio(np.eye(5)):.2f}")
    4.00
    """
    return _participation_ratio(_matrix(x, about_mean=True))


def participation_ratio_corrected(x: ArrayLike) -> Scalar:
    """The participation ratio of the population that the points are drawn from: without the bias of few points.

    Args:
        x: (points, width), points independent.

    Returns:
        A number above 0, above the width by chance; NaN for fewer than 4 points, or where rounding is all that is left.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _participation_ratio_corrected(_matrix(x, about_mean=True))


def effective_rank(x: ArrayLike) -> Scalar:
    """exp of the entropy of the eigenvalue shares of the covariance (Roy and Vetterli 2007, of the centred cloud).

    Args:
        x: (points, width).

    Returns:
        A number in [1, min(points, width)]; NaN where all points are equal.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _effective_rank(_matrix(x, about_mean=True))


def rankme(x: ArrayLike) -> Scalar:
    """RankMe (Garrido et al. 2023): exp of the entropy of the shares of the singular values, without centring.

    Args:
        x: (points, width).

    Returns:
        A number from about 1 to min(points, width).

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _rankme(_matrix(x, about_mean=False))


def isoscore(x: ArrayLike) -> Scalar:
    """IsoScore (Rudman et al. 2022): 1 for equal variance in all directions, 0 for all of it in one.

    Args:
        x: (points, width).

    Returns:
        A number in [0, 1]; NaN where all points are equal.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _isoscore(_matrix(x, about_mean=True))


def alpha_req(x: ArrayLike) -> Scalar:
    """alpha-ReQ (Agrawal et al. 2022): the exponent alpha of lambda_i ~ i^-alpha, fitted to eigenvalues 4 to 100.

    Args:
        x: (points, width).

    Returns:
        The exponent; NaN where there are too few eigenvalues to fit.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _alpha_req(_matrix(x, about_mean=True))


def twonn(x: ArrayLike) -> Scalar:
    """Intrinsic dimension by TwoNN (Facco et al. 2017): a line through the origin, of the smallest 90 % of the ratios.

    Copies of a point count once. Low above about 15 dimensions: compare with a Gaussian cloud of the same spectrum
    (`anisoscope.measure` does).

    Args:
        x: (points, width).

    Returns:
        A number above 0; NaN for fewer than 3 distinct points.

    Raises:
        ValueError: x is no matrix of real numbers with two points.

    >>> import numpy as np
    >>> sheet = np.random.default_rng(0).uniform(size=(2000, 2)) @ np.random.default_rng(1).standard_normal((2, 50))
    >>> print(f"{twonn(sheet):.1f}")
    2.0
    """
    return _twonn(_matrix(x, about_mean=True))


def twonn_mle(x: ArrayLike) -> Scalar:
    """TwoNN by maximum likelihood, from all ratios: (n - 1) / sum ln(r2/r1).

    Args:
        x: (points, width).

    Returns:
        A number above 0; NaN for fewer than 3 distinct points.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _twonn_mle(_matrix(x, about_mean=True))


def twonn_microscope(x: ArrayLike) -> Scalar:
    """TwoNN as the code of The Shape of Learning computes it: the smallest 20 % of the ratios, copies included.

    Args:
        x: (points, width).

    Returns:
        A number above 0, too high where points have copies; NaN for fewer than 5 ratios.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _twonn_microscope(_matrix(x, about_mean=True))


def levina_bickel(x: ArrayLike, k: int = 20) -> Scalar:
    """Intrinsic dimension by Levina and Bickel (2004), from k neighbours, averaged as MacKay and Ghahramani do.

    Args:
        x: (points, width).
        k: neighbours of a point, at least 3.

    Returns:
        A number above 0; NaN for too few distinct points.

    Raises:
        ValueError: x is no matrix of real numbers with two points, or has no k neighbours.
    """
    matrix_PD = _matrix(x, about_mean=True)
    _check_neighbours(k, 3, matrix_PD.shape[0])
    return _levina_bickel(matrix_PD, k=k)


def mean_cosine(x: ArrayLike) -> Scalar:
    """Mean cosine over all pairs of different points, not centred: the anisotropy of Godey et al. 2024, exactly.

    Args:
        x: (points, width).

    Returns:
        A number in [-1/(points - 1), 1]; zero vectors are left out.

    Raises:
        ValueError: x is no matrix of real numbers with two points.

    >>> import numpy as np
    >>> print(f"{mean_cosine(np.random.default_rng(0).standard_normal((500, 8)) + 2):.2f}")
    0.81
    """
    return _mean_cosine(_matrix(x, about_mean=False))


def drift(x: ArrayLike) -> Scalar:
    """|E x|, the norm of the mean vector (Godey et al. 2024).

    Args:
        x: (points, width).

    Returns:
        A number in the units of x, from 0 to the mean norm.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _drift(_matrix(x, about_mean=False))


def mean_norm(x: ArrayLike) -> Scalar:
    """E |x|, the mean norm: what a drift is compared with.

    Args:
        x: (points, width).

    Returns:
        A number in the units of x.

    Raises:
        ValueError: x is no matrix of real numbers with two points.
    """
    return _mean_norm(_matrix(x, about_mean=False))


def cka(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA (Kornblith et al. 2019): how alike two representations of the same points are.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.

    Returns:
        A number in [0, 1], 1 up to rotation, scale and shift. Independent clouds lie above 0: see `cka_unbiased`.

    Raises:
        ValueError: x or y is no matrix of real numbers, or they have different numbers of points.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((100, 5))
    >>> print(f"{cka(x, 3 * x[:, ::-1] + 1):.2f}")
    1.00
    """
    return _cka(*_pair(x, y))


def cka_unbiased(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA with the unbiased HSIC (Nguyen et al. 2021): about 0 for independent clouds of independent points.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.

    Returns:
        A number in [-1, 1]; NaN for fewer than 4 points.

    Raises:
        ValueError: x or y is no matrix of real numbers, or they have different numbers of points.
    """
    return _cka_unbiased(*_pair(x, y))


def neighbourhood_overlap(x: ArrayLike, y: ArrayLike, k: int = 10) -> Scalar:
    """Share of a point's k nearest in x that are among its k nearest in y, on average.

    Args:
        x: (points, width).
        y: (points, other width), the same points in the same order.
        k: neighbours of a point.

    Returns:
        A number in [0, 1]; about k / points for independent clouds.

    Raises:
        ValueError: x or y is no matrix of real numbers, or they have different numbers of points, or no k neighbours.
    """
    x_PD, y_PE = _pair(x, y)
    _check_neighbours(k, 1, x_PD.shape[0])
    return _neighbourhood_overlap(x_PD, y_PE, k=k)


def _pair(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    x_PD, y_PE = _matrix(x, about_mean=True), _matrix(y, about_mean=True)
    if x_PD.shape[0] != y_PE.shape[0]:
        raise ValueError(f"x has {x_PD.shape[0]} points, y {y_PE.shape[0]}; the same points are needed")
    return x_PD, y_PE


def _check_neighbours(k: int, least: int, points: int) -> None:
    if not least <= k < points:
        raise ValueError(f"k is {k}; from {least} to {points - 1} neighbours can be read of {points} points")
