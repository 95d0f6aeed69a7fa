"""The metrics of two matrices as users call them: the same points, in the same order.

>>> import anisoscope, numpy as np
>>> x = np.random.default_rng(0).standard_normal((1000, 4))
>>> print(f"{anisoscope.metrics.cka(x, 3 * x[:, ::-1] + 1):.2f}")
1.00

Types, precision, labels and errors are those of `metrics.scalars`.
"""

from anisoscope.metrics import cloud_pairs, comparison
from anisoscope.metrics.cloud import Scalar
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.public_metric import public_metric


@public_metric()
def cka(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA: the similarity of two representations of the same points.

    |X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), X and Y centered. A number in [0, 1], 1 up to rotation,
    scale and shift. Independent clouds lie above 0: see `cka_unbiased`. NaN where all points of x
    or of y are equal. Source: Kornblith et al. 2019.
    """
    return comparison.ckas(x, y).biased[0]


@public_metric()
def cka_unbiased(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA with the unbiased HSIC: about 0 for independent clouds of independent points.

    A number in [-1, 1]; NaN for fewer than 4 points, or where `cka` is NaN. Source: Song et al.
    2012 (HSIC), Nguyen et al. 2021 (its use in CKA).
    """
    return comparison.ckas(x, y).unbiased[0]


@public_metric()
def linearity(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Share of the variance of y that the best linear map of x explains, 1 - |X~ A - Y~|_F^2.

    A share in [0, 1]; for unrelated clouds about rank(x) / (points - 1). NaN where all points of
    x or of y are equal. Source: Razzhigaev et al. 2024, Your Transformer is Secretly Linear.
    """
    return cloud_pairs.linearity(x, y).score[0]


@public_metric()
def rsa(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Correlation, over all pairs of points, of their squared distances in x and in y.

    A correlation in [-1, 1], 1 up to rotation, scale and shift; about 0 for independent clouds. NaN
    where all points, or all distances, of x or of y are equal. Source: Kriegeskorte et al. 2008;
    distances and correlation as in rsatoolbox (euclidean, corr).
    """
    return cloud_pairs.alignments(x, y).rsa[0]


@public_metric()
def procrustes(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Cosine of x and y after the best rotation: |X^T Y|_* / (|X|_F |Y|_F), X and Y centered.

    A number in [0, 1], 1 up to rotation, scale and shift; far above 0 for independent clouds unless
    points far outnumber widths. NaN where all points of x or of y are equal. Source: Schoenemann
    1966; as a similarity in Williams et al. 2021.
    """
    return cloud_pairs.alignments(x, y).procrustes[0]


@public_metric()
def information_imbalance(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Mean rank in y of the point nearest in x, times 2 / points: does x predict nearness in y?

    A number in [2/points, 2), 1 on average for unrelated clouds, near 0 where x predicts y. Not
    symmetric. Source: Glielmo et al. 2022; copies of a point count once, a rule of this project.
    Ties are broken arbitrarily.
    """
    nearest = comparison.select_nearest(nearest_neighbors(x, 2), 1)
    nearest_1P = nearest.index_PC[None, :, 0]
    return cloud_pairs.information_imbalance(nearest_1P, nearest.first_P[None], y)[0]


@public_metric()
def neighbor_overlap(x: ArrayLike, y: ArrayLike, k: int = 10) -> Scalar:
    """Share of a point's k nearest in x that are among its k nearest in y, on average.

    A share in [0, 1]; about k / points for independent clouds. NaN where no point has k neighbors
    in both. Source: Doimo et al. 2020; copies of a point count once, a rule of this project.
    Ties are broken arbitrarily.
    """
    nearest = (comparison.select_nearest(nearest_neighbors(z, max(k, 2)), k) for z in (x, y))
    return comparison.neighbor_overlap(*nearest)
