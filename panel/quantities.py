"""Every number that is stored: its name, label, dimensions, units, formula and source, said once.

`measure` returns exactly these names; tables take their attributes, and figures their labels, from here.
"""

import dataclasses
from dataclasses import dataclass

from metrics.outliers import TOPS
from metrics.scale import FACTORS, QUANTILES, SCALES

LAYER = ("layer",)  # 0: the sum of the embeddings; l: the residual stream after block l
LAYERS = ("layer", "other_layer")
HEAD = ("block", "head")
COORDINATES = {"top": TOPS, "neighbours": SCALES, "factor": FACTORS, "quantile": QUANTILES}
OVERLAP_NEIGHBOURS = 10

SHAPE_OF_LEARNING = "Razzhigaev et al. 2024, The Shape of Learning"
INHERENT = "Godey et al. 2024, Anisotropy Is Inherent to Self-Attention in Transformers"
FACCO = "Facco et al. 2017"
DENTI = "Denti et al. 2022, The generalized ratios intrinsic dimension estimator"
RECONSTRUCTED = f"reconstruction after {INHERENT}"
SINK = "Gu et al. 2025, When Attention Sink Emerges, rows of one key left out"
MASSIVE = "after Sun et al. 2024, Massive Activations in Large Language Models; the median of each position"
HERE = "this project"


@dataclass(frozen=True, slots=True)
class Quantity:
    family: str
    dims: tuple[str, ...]
    resampling: str  # how its interval is made, as in panel/intervals.py; "" for none but the batches
    long_name: str
    units: str
    formula: str
    source: str
    version: int = 1

    @property
    def raw_dims(self) -> tuple[str, ...]:
        """Of the array that `measure` returns: replicates last."""
        return ("batch", "positions", *self.dims, *([self.resampling] if self.resampling else []))


def _spectral(long_name: str, formula: str, source: str) -> Quantity:
    return Quantity("spectrum", LAYER, "jackknife", long_name, "1", formula, source)


def _dimension(long_name: str, formula: str, source: str) -> Quantity:
    return Quantity("dimension", LAYER, "sections", f"intrinsic dimension ({long_name})", "1", formula, source)


def _count(long_name: str, formula: str, source: str) -> Quantity:
    return Quantity("dimension", LAYER, "", long_name, "points", formula, source)


def _similarity(long_name: str, units: str, formula: str, source: str) -> Quantity:
    return Quantity("similarity", LAYER, "jackknife", long_name, units, formula, source)


def _attention(long_name: str, units: str, formula: str, source: str) -> Quantity:
    return Quantity("attention", HEAD, "jackknife", long_name, units, formula, source)


SPECTRUM = {  # lambda: eigenvalues of the covariance C of the centred cloud, largest first; D: width; P: points
    "anisotropy": _spectral("anisotropy", "max(lambda) / sum(lambda)", SHAPE_OF_LEARNING),
    "anisotropy_uncentred": _spectral(
        "anisotropy about the origin", "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centred", HERE
    ),
    "participation_ratio": _spectral(
        "participation ratio", "(sum lambda)^2 / sum(lambda^2)", "Gao et al. 2017, after Litwin-Kumar et al. 2017"
    ),
    "participation_ratio_corrected": _spectral(
        "participation ratio, corrected for the number of points",
        "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent",
        "reconstruction after Chun et al. 2025",
    ),
    "effective_rank": _spectral(
        "effective rank", "exp(-sum p ln p), p = lambda / sum(lambda)", "after Roy and Vetterli 2007"
    ),
    "rankme": _spectral(
        "RankMe", "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)", "Garrido et al. 2023, centred"
    ),
    "stable_rank": _spectral("stable rank", "sum(lambda) / max(lambda)", "Rudelson and Vershynin 2007"),
    "isoscore": _spectral("IsoScore", "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)", "Rudman et al. 2022"),
    "isoscore_star": _spectral(
        "IsoScore*",
        "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004",
        "Rudman and Eickhoff 2024; target and weight: this project",
    ),
    "alpha_req": _spectral(
        "power-law exponent of the spectrum",
        "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 lambda_1",
        "Agrawal et al. 2022",
    ),
    "alpha_req_r2": _spectral("R^2 of the power law", "R^2 of that line", HERE),
}

OUTLIERS = {
    "coordinate_share": Quantity(
        "outliers",
        ("layer", "top"),
        "jackknife",
        "variance in the top coordinates",
        "1",
        "share of the total variance in the `top` coordinates of largest variance",
        HERE,
    ),
    "coordinate_kurtosis": Quantity(
        "outliers",
        LAYER,
        "jackknife",
        "kurtosis across coordinates",
        "1",
        "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j",
        "after He et al. 2024",
    ),
    "activation_kurtosis": Quantity(
        "outliers",
        LAYER,
        "jackknife",
        "kurtosis of the activations",
        "1",
        "mean over coordinates of the kurtosis over points",
        HERE,
    ),
    "coordinate_peak": Quantity(
        "outliers",
        LAYER,
        "jackknife",
        "peak of a vector's coordinates",
        "1",
        "mean over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower",
        MASSIVE,
    ),
    "massive_activation": Quantity(
        "outliers",
        LAYER,
        "",
        "most massive activation",
        "1",
        "largest over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower",
        MASSIVE,
    ),
} | {
    f"{name}_left_out": dataclasses.replace(
        quantity,
        family="outliers",
        dims=("layer", "top"),
        long_name=f"{quantity.long_name}, top coordinates left out",
        formula=f"{quantity.formula}, of the cloud without its `top` coordinates of largest variance",
    )
    for name, quantity in SPECTRUM.items()
}

DIMENSION = {
    "twonn": _dimension(
        "TwoNN, 90 % fit",
        "slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct points",
        FACCO,
    ),
    "twonn_mle": _dimension(
        "TwoNN, maximum likelihood",
        "(n - 1) / sum ln(r2/r1) over the n distinct points",
        f"{FACCO}, in DADApy's unbiased form",
    ),
    "twonn_bayes": _dimension(
        "TwoNN, posterior mean", "(2 + n) / (5 + sum ln(r2/r1)), prior Gamma(2, 5)", f"{FACCO}, with DADApy's prior"
    ),
    "twonn_bayes_deviation": _dimension(
        "TwoNN, posterior deviation",
        "sqrt(2 + n) / (5 + sum ln(r2/r1)); takes the ratios for independent, which they are not",
        f"{FACCO}, with DADApy's prior",
    ),
    "twonn_microscope": _dimension(
        "LLM-Microscope's 20 % rule",
        "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped points counted in F",
        SHAPE_OF_LEARNING,
    ),
    "duplicate_points": _count(
        "copies of an earlier point",
        "points equal in every float32 coordinate to an earlier one; left out of every dimension but LLM-Microscope's",
        HERE,
    ),
    "twonn_dropped": _count(
        "distinct points without a ratio",
        "distinct points without two finite neighbours, or whose nearest differs by rounding alone (below 2e-6 |x|); "
        "left out of all but LLM-Microscope's",
        HERE,
    ),
    "microscope_useless": _count(
        "useless points (LLM-Microscope)", "r1 < 1e-8 mean|x - E x|, copies being neighbours", SHAPE_OF_LEARNING
    ),
    "microscope_dropped": _count(
        "dropped points (LLM-Microscope)",
        "useless points and those with r2/r1 <= 1 + 1e-8; still counted in F",
        SHAPE_OF_LEARNING,
    ),
}

SCALE = {
    "gride": Quantity(
        "scale",
        ("layer", "neighbours"),
        "sections",
        "intrinsic dimension (GRIDE)",
        "1",
        "maximum likelihood from r_2k/r_k, k = `neighbours`",
        DENTI,
    ),
    "decimation": Quantity(
        "scale",
        ("layer", "factor"),
        "",
        "intrinsic dimension of a thinned cloud",
        "1",
        "twonn of every f-th point, mean over the f disjoint subsets, f = `factor`",
        FACCO,
    ),
    "levina_bickel": Quantity(
        "scale",
        LAYER,
        "sections",
        "intrinsic dimension (Levina-Bickel, 20 neighbours)",
        "1",
        "inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j)",
        "Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005",
    ),
    "local_dimension": Quantity(
        "scale",
        ("layer", "quantile"),
        "sections",
        "local dimension (20 neighbours), quantile over points",
        "1",
        "quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in 1/d",
        "Levina and Bickel 2004",
    ),
    "plateau": Quantity(
        "scale",
        LAYER,
        "sections",
        "intrinsic dimension on the plateau",
        "1",
        "geometric mean of gride over the longest run of 3 scales or more that agree within 10 % in the mean over "
        "batches; the same scales for each batch and null model; NaN: no plateau",
        HERE,
    ),
}

SIMILARITY = {
    "mean_cosine": _similarity(
        "mean cosine of pairs",
        "1",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0",
        INHERENT,
    ),
    "mean_cosine_drift": _similarity(
        "mean cosine, part of the drift", "1", "|E x|^2 mean over pairs of 1/(|x_i| |x_j|)", HERE
    ),
    "mean_cosine_residual": _similarity("mean cosine, residual", "1", "mean_cosine - mean_cosine_drift", HERE),
    "drift": _similarity("drift", "activation", "|E x|", INHERENT),
    "mean_norm": _similarity("mean norm", "activation", "E |x|", INHERENT),
    "log_partition_isotropy": _similarity(
        "log of the partition function's isotropy",
        "1",
        "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X",
        "Mu and Viswanath 2018; both signs: this project",
    ),
}


def _comparison(dims: tuple[str, ...], kind: str, what: str) -> Quantity:
    if kind == "cka":
        words, resampling = ("linear CKA", "|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), centred"), "jackknife"
        source = "Kornblith et al. 2019"
    else:
        words = (
            "neighbourhood overlap",
            f"share of common points among the {OVERLAP_NEIGHBOURS} nearest distinct points of each point that is the "
            "first of its copies in both clouds",
        )
        resampling, source = "share_sections", "Doimo et al. 2020"
    return Quantity("comparison", dims, resampling, f"{words[0]} {what}", "1", words[1], source)


COMPARISON = {
    f"{kind}_{name}": _comparison(dims, kind, what)
    for kind in ("cka", "overlap")
    for name, dims, what in (
        ("layers", LAYERS, "of two layers"),
        ("previous", LAYER, "with the checkpoint before"),
        ("last", LAYER, "with the last checkpoint"),
    )
}

OVER = "E over the cloud's points"  # scores and weights are over all positions of the windows

ATTENTION = {
    "query_drift": _attention("query drift", "activation", f"|E q|, {OVER}", RECONSTRUCTED),
    "key_drift": _attention("key drift", "activation", f"|E k|, {OVER}", RECONSTRUCTED),
    "query_fluctuation": _attention("fluctuation of queries", "activation", f"sqrt(E |q - E q|^2), {OVER}", HERE),
    "key_fluctuation": _attention("fluctuation of keys", "activation", f"sqrt(E |k - E k|^2), {OVER}", HERE),
    "query_key_alignment": _attention(
        "alignment of query and key drift", "1", f"<E q, E k> / (|E q| |E k|), {OVER}", RECONSTRUCTED
    ),
    "query_cosine": _attention("mean cosine of queries", "1", "mean_cosine of q at the cloud's points", RECONSTRUCTED),
    "key_cosine": _attention("mean cosine of keys", "1", "mean_cosine of k at the cloud's points", RECONSTRUCTED),
    "query_key_cosine": _attention(
        "mean cosine of queries and keys", "1", f"<E q/|q|, E k/|k|> of those that are not 0, {OVER}", RECONSTRUCTED
    ),
    "score_mean": _attention("mean score", "1", "mean of s_ij = <q_i, k_j>/sqrt(K), all visible pairs", INHERENT),
    "score_std": _attention("deviation of scores", "1", "standard deviation of s_ij, all visible pairs", INHERENT),
    "score_std_within": _attention(
        "deviation of scores within rows",
        "1",
        "sqrt(mean_i var_j s_ij), visible pairs, rows of two keys or more",
        HERE,
    ),
    "score_of_means": _attention("score of the means", "1", f"c = <E q, E k>/sqrt(K), {OVER}", RECONSTRUCTED),
    "score_share_of_means": _attention(
        "share of the scores that the means explain",
        "1",
        f"c^2 / (c^2 + mean of (s_ij - c)^2), all visible pairs, c = <E q, E k>/sqrt(K), {OVER}",
        HERE,
    ),
    "attention_entropy": _attention(
        "attention entropy",
        "nat",
        "mean_i of -sum_j p_ij ln p_ij, p = softmax_j s over the visible keys, whatever the model does with s",
        INHERENT,
    ),
    "attention_max": _attention("largest attention", "1", "mean_i max_j p_ij", INHERENT),
    "attention_min": _attention("smallest attention", "1", "mean_i min_j p_ij, visible j", INHERENT),
    "attention_first": _attention("attention on position 0", "1", "mean of p_i0 over the rows i that see it", SINK),
    "attention_most": _attention(
        "attention on the most attended position", "1", "max_j of the mean of p_ij over the rows i that see j", HERE
    ),
}

QUANTITIES: dict[str, Quantity] = SPECTRUM | OUTLIERS | DIMENSION | SCALE | SIMILARITY | COMPARISON | ATTENTION
