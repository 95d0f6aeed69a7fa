"""Every number that is stored: its name, label, dimensions, units, formula and source, said once.

`measure` returns exactly these names; tables take their attributes, and figures their labels, from here.
"""

from dataclasses import dataclass

LAYER = ("layer",)  # 0: the sum of the embeddings; l: the residual stream after block l
HEAD = ("block", "head")

SHAPE_OF_LEARNING = "Razzhigaev et al. 2024, The Shape of Learning"
INHERENT = "Godey et al. 2024, Anisotropy Is Inherent to Self-Attention in Transformers"
FACCO = "Facco et al. 2017"
RECONSTRUCTED = f"reconstruction after {INHERENT}"


@dataclass(frozen=True, slots=True)
class Quantity:
    family: str
    dims: tuple[str, ...]
    long_name: str
    units: str
    formula: str
    source: str


QUANTITIES = {
    "anisotropy": Quantity(
        "spectrum", LAYER, "anisotropy", "1", "max(lambda) / sum(lambda), lambda of cov(x)", SHAPE_OF_LEARNING
    ),
    "twonn": Quantity(
        "dimension",
        LAYER,
        "intrinsic dimension (TwoNN, 90 % fit)",
        "1",
        "slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct points",
        FACCO,
    ),
    "twonn_mle": Quantity(
        "dimension",
        LAYER,
        "intrinsic dimension (TwoNN, maximum likelihood)",
        "1",
        "(n - 1) / sum ln(r2/r1) over the n distinct points",
        f"{FACCO}, in DADApy's unbiased form",
    ),
    "twonn_microscope": Quantity(
        "dimension",
        LAYER,
        "intrinsic dimension (LLM-Microscope's 20 % rule)",
        "1",
        "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped points counted in F",
        SHAPE_OF_LEARNING,
    ),
    "duplicate_points": Quantity(
        "dimension",
        LAYER,
        "copies of an earlier point",
        "points",
        "points equal in every float32 coordinate to an earlier one; left out of twonn and twonn_mle",
        "this project",
    ),
    "twonn_dropped": Quantity(
        "dimension",
        LAYER,
        "distinct points without a ratio",
        "points",
        "distinct points without two neighbours at positive, finite distances; left out of twonn and twonn_mle",
        "this project",
    ),
    "microscope_useless": Quantity(
        "dimension",
        LAYER,
        "useless points (LLM-Microscope)",
        "points",
        "r1 < 1e-8 mean|x - E x|, copies being neighbours",
        SHAPE_OF_LEARNING,
    ),
    "microscope_dropped": Quantity(
        "dimension",
        LAYER,
        "dropped points (LLM-Microscope)",
        "points",
        "useless points and those with r2/r1 <= 1 + 1e-8; still counted in F",
        SHAPE_OF_LEARNING,
    ),
    "mean_cosine": Quantity(
        "similarity",
        LAYER,
        "mean cosine of pairs",
        "1",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs",
        INHERENT,
    ),
    "drift": Quantity("similarity", LAYER, "drift", "activation", "|E x|", INHERENT),
    "mean_norm": Quantity("similarity", LAYER, "mean norm", "activation", "E |x|", INHERENT),
    "query_drift": Quantity("attention", HEAD, "query drift", "activation", "|E q|", RECONSTRUCTED),
    "key_drift": Quantity("attention", HEAD, "key drift", "activation", "|E k|", RECONSTRUCTED),
    "query_key_alignment": Quantity(
        "attention",
        HEAD,
        "alignment of query and key drift",
        "1",
        "<E q, E k> / (|E q| |E k|)",
        RECONSTRUCTED,
    ),
    "query_cosine": Quantity("attention", HEAD, "mean cosine of queries", "1", "mean_cosine of q", RECONSTRUCTED),
    "key_cosine": Quantity("attention", HEAD, "mean cosine of keys", "1", "mean_cosine of k", RECONSTRUCTED),
    "query_key_cosine": Quantity(
        "attention",
        HEAD,
        "mean cosine of queries and keys",
        "1",
        "<E q/|q|, E k/|k|>, all P x P pairs",
        RECONSTRUCTED,
    ),
    "score_mean": Quantity(
        "attention", HEAD, "mean score", "1", "mean of s_ij = <q_i, k_j>/sqrt(K), visible pairs", INHERENT
    ),
    "score_std": Quantity(
        "attention", HEAD, "deviation of scores", "1", "standard deviation of s_ij, visible pairs", INHERENT
    ),
    "score_std_within": Quantity(
        "attention",
        HEAD,
        "deviation of scores within rows",
        "1",
        "sqrt(mean_i var_j s_ij), visible pairs, rows of two keys or more",
        "this project",
    ),
    "attention_entropy": Quantity(
        "attention", HEAD, "attention entropy", "nat", "mean_i of -sum_j p_ij ln p_ij, p = softmax_j s", INHERENT
    ),
    "attention_max": Quantity("attention", HEAD, "largest attention", "1", "mean_i max_j p_ij", INHERENT),
    "attention_min": Quantity("attention", HEAD, "smallest attention", "1", "mean_i min_j p_ij, visible j", INHERENT),
}
