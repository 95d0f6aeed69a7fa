"""Formulas of quantities in LaTeX, by the words that their entries have for them; and what is left
to say in words.

A formula that is not here is shown in its own words. One that no quantity has is an error when the
site is built.
"""

from collections.abc import Iterable

FEWER = "NaN below 64 distinct points, or half of a cloud of fewer than 128."
OVER = ", E over the cloud's points"
TRUE = "y the token that the point is to predict: the next, or of masked characters its own; points without left out"
TRUE_TOKEN = "y is the token that the point is to predict: the next, or of masked characters its own. Points without are left out."
OCCURS = "N of how many distinct points a point is one of the 10 nearest, over the distinct points"
OCCURRENCES = (
    "N is of how many distinct points a point is one of the 10 nearest; over the distinct points."
)

LATEX: dict[str, tuple[str, str]] = {
    "max(lambda) / sum(lambda)": (
        r"\frac{\lambda_1}{\sum_i \lambda_i}",
        "The eigenvalues λ are those of the covariance, largest first.",
    ),
    "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centred": (
        r"\frac{\lambda_1(S)}{\operatorname{tr} S}, \qquad S = \frac{1}{P} \sum_i x_i x_i^{\top}",
        "Not centred.",
    ),
    "(sum lambda)^2 / sum(lambda^2)": (
        r"\frac{\left(\sum_i \lambda_i\right)^2}{\sum_i \lambda_i^2}",
        "",
    ),
    "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent": (
        r"\frac{\widehat{(\operatorname{tr} C)^2}}{\widehat{\operatorname{tr} C^2}}",
        "Both estimates are unbiased where the points are independent.",
    ),
    "exp(-sum p ln p), p = lambda / sum(lambda)": (
        r"\exp\left(-\sum_i p_i \ln p_i\right), \qquad p_i = \frac{\lambda_i}{\sum_j \lambda_j}",
        "",
    ),
    "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)": (
        r"\exp\left(-\sum_i p_i \ln p_i\right), \qquad p_i = \frac{s_i}{\sum_j s_j} + 10^{-7}, \qquad s_i = \sqrt{\lambda_i}",
        "",
    ),
    "sum(lambda) / max(lambda)": (r"\frac{\sum_i \lambda_i}{\lambda_1}", ""),
    "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)": (
        r"\frac{1}{D - 1} \left(\frac{\left(\sum_i \lambda_i\right)^2}{\sum_i \lambda_i^2} - 1\right)",
        "",
    ),
    "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004": (
        r"\operatorname{IsoScore}\left((1 - z)\, C + z\, \frac{\operatorname{tr} C}{D}\, I\right)",
        "The weight z is that of Ledoit and Wolf 2004.",
    ),
    "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 lambda_1": (
        r"\lambda_i \sim i^{-\alpha}, \qquad 4 \le i \le 100, \qquad \lambda_i > 10^{-9} \lambda_1",
        "A line through ln λ over ln i, with weights 1/i; α is its slope, less the sign.",
    ),
    "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j": (
        r"\frac{D \sum_j v_j^2}{\left(\sum_j v_j\right)^2}",
        "v is the variance of each coordinate.",
    ),
    "mean over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower; vectors of zeros are left out": (
        r"\frac{1}{P} \sum_i \frac{\max_j |x_{ij}|}{\operatorname{median}_j |x_{ij}|}",
        "Of two medians the lower. Vectors of zeros are left out.",
    ),
    "largest over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower; vectors of zeros are left out": (
        r"\max_i \frac{\max_j |x_{ij}|}{\operatorname{median}_j |x_{ij}|}",
        "Of two medians the lower. Vectors of zeros are left out.",
    ),
    "f (1 - f) |E x_first - E x_other|^2 / tr C, f the share of tokens 0; a lower bound of the anisotropy": (
        r"\frac{f (1 - f)\, \left|\mathrm{E}\, x_{\text{first}} - \mathrm{E}\, x_{\text{other}}\right|^2}{\operatorname{tr} C}",
        "f is the share of tokens 0. A lower bound of the anisotropy.",
    ),
    "f (1 - f) r^2 / (1 + f (1 - f) r^2), r^2 = E |x_first|^2 / E |x_other|^2": (
        r"\frac{f (1 - f)\, r^2}{1 + f (1 - f)\, r^2}, \qquad"
        r" r^2 = \frac{\mathrm{E}\, |x_{\text{first}}|^2}{\mathrm{E}\, |x_{\text{other}}|^2}",
        "",
    ),
    "f (1 - f) |E x_long - E x_other|^2 / tr C, f = 1 %; a lower bound of the anisotropy": (
        r"\frac{f (1 - f)\, \left|\mathrm{E}\, x_{\text{long}} - \mathrm{E}\, x_{\text{other}}\right|^2}{\operatorname{tr} C}, \qquad f = 0.01",
        "A lower bound of the anisotropy.",
    ),
    "E (s - E s)^4 / (E (s - E s)^2)^2, s = <x, v_1>; about 1/f where a share f of the points makes v_1": (
        r"\frac{\mathrm{E}\, (s - \mathrm{E}\, s)^4}{\left(\mathrm{E}\, (s - \mathrm{E}\, s)^2\right)^2}, \qquad s = \langle x, v_1 \rangle",
        "About 1/f where a share f of the points makes the first principal direction v₁.",
    ),
    "1 - (1 - eta^2) (n - 1) / (n - g), eta^2 = sum_t f_t (E_t s - E s)^2 / E (s - E s)^2, s = <x, v_1>, over the g positions t of n"
    " points, f_t the share of the points at t; about 0 where positions do not tell s": (
        r"1 - (1 - \eta^2)\, \frac{n - 1}{n - g}, \qquad"
        r" \eta^2 = \frac{\sum_t f_t\, (\mathrm{E}_t\, s - \mathrm{E}\, s)^2}{\mathrm{E}\, (s - \mathrm{E}\, s)^2}, \qquad s = \langle x, v_1 \rangle",
        "Over the g positions t of n points, a share f of the points at each. About 0 where positions do not tell s.",
    ),
    "max |x| / median |x|, of two medians the lower": (
        r"\frac{\max_i |x_i|}{\operatorname{median}_i |x_i|}",
        "Of two medians the lower. Vectors of zeros are left out.",
    ),
    "mean over windows of -sum p ln p, p = s^2 / sum(s^2), s the singular values of the n vectors of the cloud in one window, not centred;"
    " at most ln min(n, D)": (
        r"\left\langle -\sum_i p_i \ln p_i \right\rangle_{\text{windows}}, \qquad p_i = \frac{s_i^2}{\sum_j s_j^2}",
        "s are the singular values of the n vectors of the cloud in one window, not centred. At most ln min(n, D).",
    ),
    "(n - 1) / sum ln(r2/r1) over the n distinct points; NaN below 64 distinct points, or half of a cloud of fewer than 128": (
        r"\frac{n - 1}{\sum_i \ln (r_{2,i} / r_{1,i})}",
        f"r₁ and r₂ are the distances to the two nearest of the n distinct points. {FEWER}",
    ),
    "slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct points; NaN below 64 distinct points, or half"
    " of a cloud of fewer than 128": (
        r"-\ln\left(1 - \frac{i}{n}\right) = d\, \ln \frac{r_{2,(i)}}{r_{1,(i)}}",
        f"d is the slope of a line through the origin, of the smallest 90 % of the ratios of n distinct points. {FEWER}",
    ),
    "(2 + n) / (5 + sum ln(r2/r1)), prior Gamma(2, 5); NaN below 64 distinct points, or half of a cloud of fewer than 128": (
        r"\frac{2 + n}{5 + \sum_i \ln (r_{2,i} / r_{1,i})}",
        f"The prior is Gamma(2, 5). {FEWER}",
    ),
    "sqrt(2 + n) / (5 + sum ln(r2/r1)); takes the ratios for independent, which they are not; NaN below 64 distinct points, or half of a"
    " cloud of fewer than 128": (
        r"\frac{\sqrt{2 + n}}{5 + \sum_i \ln (r_{2,i} / r_{1,i})}",
        f"Takes the ratios for independent, which they are not. {FEWER}",
    ),
    "inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j); NaN below 64 distinct points, or half of a cloud of fewer"
    " than 128": (
        r"\left( \frac{1}{P} \sum_i \frac{1}{19} \sum_{j < 20} \ln \frac{r_{20,i}}{r_{j,i}} \right)^{-1}",
        FEWER,
    ),
    "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0": (
        r"\frac{\left|\sum_i x_i / |x_i|\right|^2 - P}{P\, (P - 1)}",
        "All pairs of the P vectors that are not 0.",
    ),
    "|E x|^2 mean over pairs of 1/(|x_i| |x_j|)": (
        r"|\mathrm{E}\, x|^2 \left\langle \frac{1}{|x_i|\, |x_j|} \right\rangle_{i \ne j}",
        "",
    ),
    "|E x|": (r"|\mathrm{E}\, x|", ""),
    "E |x|": (r"\mathrm{E}\, |x|", ""),
    "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X": (
        r"\ln \frac{\min_c Z(c)}{\max_c Z(c)}, \qquad Z(c) = \sum_i \exp \langle c, x_i \rangle",
        "c are the eigenvectors of the second moments of the cloud, with both signs.",
    ),
    "|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), centred": (
        r"\frac{\left\| X^{\top} Y \right\|_F^2}{\left\| X^{\top} X \right\|_F \left\| Y^{\top} Y \right\|_F}",
        "Both clouds centred.",
    ),
    "HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L)), K = X X^T, L = Y Y^T; HSIC_1 is unbiased for independent points; 0 on average for"
    " independent clouds of them": (
        r"\frac{\mathrm{HSIC}_1(K, L)}{\sqrt{\mathrm{HSIC}_1(K, K)\, \mathrm{HSIC}_1(L, L)}}, \qquad K = X X^{\top}, \quad L = Y Y^{\top}",
        "HSIC₁ is unbiased for independent points: 0 on average for independent clouds of them.",
    ),
    f"|E q|{OVER}": (r"|\mathrm{E}\, q|", "E is over the points of the cloud."),
    f"|E k|{OVER}": (r"|\mathrm{E}\, k|", "E is over the points of the cloud."),
    f"sqrt(E |q - E q|^2){OVER}": (
        r"\sqrt{\mathrm{E}\, |q - \mathrm{E}\, q|^2}",
        "E is over the points of the cloud.",
    ),
    f"sqrt(E |k - E k|^2){OVER}": (
        r"\sqrt{\mathrm{E}\, |k - \mathrm{E}\, k|^2}",
        "E is over the points of the cloud.",
    ),
    f"<E q, E k> / (|E q| |E k|){OVER}": (
        r"\frac{\langle \mathrm{E}\, q, \mathrm{E}\, k \rangle}{|\mathrm{E}\, q|\, |\mathrm{E}\, k|}",
        "E is over the points of the cloud.",
    ),
    f"<E q/|q|, E k/|k|> of those that are not 0{OVER}": (
        r"\left\langle \mathrm{E}\, \frac{q}{|q|},\; \mathrm{E}\, \frac{k}{|k|} \right\rangle",
        "Of those that are not 0; E is over the points of the cloud.",
    ),
    "mean of s_ij = <q_i, k_j>/sqrt(K), all visible pairs": (
        r"\left\langle s_{ij} \right\rangle, \qquad s_{ij} = \frac{\langle q_i, k_j \rangle}{\sqrt{K}}",
        "All pairs of a query and a key that it sees; K is the width of a head.",
    ),
    "standard deviation of s_ij, all visible pairs": (
        r"\sqrt{\left\langle (s_{ij} - \langle s \rangle)^2 \right\rangle}",
        "All visible pairs.",
    ),
    "sqrt(mean_i var_j s_ij), visible pairs, rows of two keys or more": (
        r"\sqrt{\left\langle \operatorname{var}_j s_{ij} \right\rangle_i}",
        "Visible pairs, of rows of two keys or more.",
    ),
    f"c = <E q, E k>/sqrt(K){OVER}": (
        r"c = \frac{\langle \mathrm{E}\, q, \mathrm{E}\, k \rangle}{\sqrt{K}}",
        "E is over the points of the cloud.",
    ),
    f"c^2 / (c^2 + mean of (s_ij - c)^2), all visible pairs, c = <E q, E k>/sqrt(K){OVER}": (
        r"\frac{c^2}{c^2 + \left\langle (s_{ij} - c)^2 \right\rangle}, \qquad c = \frac{\langle \mathrm{E}\, q, \mathrm{E}\, k \rangle}{\sqrt{K}}",
        "All visible pairs; E is over the points of the cloud.",
    ),
    "mean_i of -sum_j p_ij ln p_ij, p = softmax_j s over the visible keys, whatever the model does with s": (
        r"\left\langle -\sum_j p_{ij} \ln p_{ij} \right\rangle_i, \qquad p_{ij} = \operatorname{softmax}_j s_{ij}",
        "Over the visible keys, whatever the model does with s.",
    ),
    "mean_i max_j p_ij": (r"\left\langle \max_j p_{ij} \right\rangle_i", ""),
    "mean_i min_j p_ij, visible j": (
        r"\left\langle \min_j p_{ij} \right\rangle_i",
        "Of the visible keys j.",
    ),
    "mean of p_i0 over the rows i that see it": (
        r"\left\langle p_{i0} \right\rangle_i",
        "Over the rows i that see position 0.",
    ),
    "max_j of the mean of p_ij over the rows i that see j": (
        r"\max_j \left\langle p_{ij} \right\rangle_i",
        "Each mean is over the rows i that see position j.",
    ),
    "sum_k n_k |m_k - m|^2 / sum_i |x_i - m|^2 over the points whose last n characters (n: `ngram`) occur at 20 points of the cloud or more,"
    " and in the training split, m_k the mean of type k; by chance (K - 1)/(n - 1) of K types of n points": (
        r"\frac{\sum_k n_k\, |m_k - m|^2}{\sum_i |x_i - m|^2}",
        "Over the points whose last n characters (n: ngram) occur at 20 points of the cloud or more, and in the training split; m with an"
        " index is the mean of a type. By chance (K − 1)/(n − 1) of K types of n points.",
    ),
    "share of the total variance in the `top` coordinates of largest variance": (
        r"\frac{\sum_{j \le \text{top}} v_{(j)}}{\sum_j v_j}",
        "v is the variance of each coordinate, largest first.",
    ),
    "maximum likelihood from r_2k/r_k, k = `neighbours`; NaN below 64 distinct points, or half of a cloud of fewer than 128": (
        r"\operatorname{argmax}_d \prod_i f\left(\frac{r_{2k,i}}{r_{k,i}} \,\middle|\, d\right), \qquad k = \text{neighbours}",
        f"f is the density of the ratio of two distances to neighbours, in Denti et al. 2022. {FEWER}",
    ),
    "quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in 1/d; NaN below 64 distinct points, or half of a"
    " cloud of fewer than 128": (
        r"d_i = \frac{20 - 2}{\sum_{j < 20} \ln (r_{20,i} / r_{j,i})}",
        f"Quantiles over the distinct points, interpolated in 1/d. {FEWER}",
    ),
    "mean_cosine - mean_cosine_drift": (r"\text{mean_cosine} - \text{mean_cosine_drift}", ""),
    "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped points counted in F": (
        r"-\ln\left(1 - \frac{u + j}{n + u}\right) = d\, \ln \frac{r_{2,(j)}}{r_{1,(j)}}",
        "d is the slope of a line through the origin, of the smallest 20 % of the ratios; u dropped points are counted.",
    ),
    "mean over points of -sum p_l ln p_l, p_l = softmax(W' norm(x_l)): final norm and unembedding at layer l": (
        r"\left\langle -\sum_v p_{l,v} \ln p_{l,v} \right\rangle, \qquad p_l = \operatorname{softmax}(W^{\top} \operatorname{norm}(x_l))",
        "The final norm and the unembedding at layer l; the mean is over points.",
    ),
    "mean over points of sum p ln(p / p_l), p that of the last layer": (
        r"\left\langle \sum_v p_v \ln \frac{p_v}{p_{l,v}} \right\rangle",
        "p is that of the last layer; the mean is over points.",
    ),
    f"mean over points of -log2 p_l(y), {TRUE}": (
        r"\left\langle -\log_2 p_l(y) \right\rangle",
        TRUE_TOKEN,
    ),
    f"mean over points of p_l(y), {TRUE}": (r"\left\langle p_l(y) \right\rangle", TRUE_TOKEN),
    "|U'W|_F^2 / k, U the k = 10 leading principal directions of the layer, W those of the tokens' unembeddings about their mean, times the"
    " norm's scale, k at most the tokens less one; k/D by chance": (
        r"\frac{\left\| U^{\top} W \right\|_F^2}{k}, \qquad k = 10",
        "U are the leading principal directions of the layer, W those of the tokens' unembeddings about their mean, times the norm's scale. k is"
        " less where there are fewer tokens. k/D by chance.",
    ),
    f"1 - (S_W / (n - K)) / (S_T / (n - 1)), S_W and S_T the squared distances from the means of the K true tokens and of all n points, {TRUE};"
    " 0 where tokens say nothing of the points": (
        r"1 - \frac{S_W / (n - K)}{S_T / (n - 1)}",
        f"The sums are the squared distances from the means of the K true tokens, and of all n points. {TRUE_TOKEN} 0 where tokens say nothing"
        " of the points.",
    ),
    "mean of arccos <v, w> / (|v| |w|), v = x_t - x_(t-1), w = x_(t+1) - x_t, at the points of the cloud whose neighbours in the window are in"
    " it too; 0 of a straight path, pi/2 of independent steps, 2 pi/3 of independent points": (
        r"\left\langle \arccos \frac{\langle v, w \rangle}{|v|\, |w|} \right\rangle, \qquad v = x_t - x_{t-1}, \quad w = x_{t+1} - x_t",
        "At the points of the cloud whose neighbours in the window are in it too. 0 of a straight path, π/2 of independent steps, 2π/3 of"
        " independent points.",
    ),
    **{
        f"1 - min_A |X A - Y|_F^2, X the layer before and Y {what}, both centred and of norm 1; none of layer 0": (
            r"1 - \min_A \left\| X A - Y \right\|_F^2",
            f"X is the layer before and Y {what}, both centred and of norm 1. None of layer 0.",
        )
        for what in ("the layer", "the layer less the one before")
    },
    **{
        f"1 - (1 - {name}) (P - 1) / (P - 1 - r), r the rank of the layer before: 0 on average of unrelated points": (
            r"1 - (1 - \ell)\, \frac{P - 1}{P - 1 - r}",
            f"ℓ is {name} and r the rank of the layer before: 0 on average of unrelated points.",
        )
        for name in ("linearity", "linearity_update")
    },
    "2/n times the mean rank in `other_layer` of the nearest in `layer`, among the n distinct points; 1 where they know nothing of one another,"
    " near 0 where nearness in `layer` tells that in `other_layer`": (
        r"\frac{2}{n} \left\langle \operatorname{rank}_i^{\text{other}}(j) \right\rangle_i, \qquad j \text{ nearest to } i \text{ in the layer}",
        "Among the n distinct points. 1 where the two layers know nothing of one another, near 0 where nearness in the layer tells that in the"
        " other one.",
    ),
    "Pearson's correlation of |x_i - x_j|^2 and |y_i - y_j|^2 over all pairs of points": (
        r"\operatorname{corr}_{i < j}\left(|x_i - x_j|^2,\; |y_i - y_j|^2\right)",
        "Pearson's, over all pairs of points.",
    ),
    "max over rotations Q of <X Q, Y> / (|X|_F |Y|_F) = |X^T Y|_* / (|X|_F |Y|_F), centred": (
        r"\max_Q \frac{\langle X Q, Y \rangle}{\left\| X \right\|_F \left\| Y \right\|_F}"
        r" = \frac{\left\| X^{\top} Y \right\|_*}{\left\| X \right\|_F \left\| Y \right\|_F}",
        "Over rotations Q, both clouds centred; the norm with a star is the sum of the singular values.",
    ),
    "ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r, r1 and r2 the medians of the distances to the 10th and 20th neighbour;"
    " NaN below 64 distinct points, or half of a cloud of fewer than 128": (
        r"\frac{\ln (C(r_2) / C(r_1))}{\ln (r_2 / r_1)}",
        f"C(r) is the share of pairs nearer than r; r₁ and r₂ are the medians of the distances to the 10th and 20th neighbour. {FEWER}",
    ),
    "1/(1 - s), s the slope of ln of the tree's length on ln n, n = P/8, P/4, P/2, P distinct points; NaN below 64 distinct points, or half of a"
    " cloud of fewer than 128": (
        r"\frac{1}{1 - s}, \qquad \text{length}(n) \sim n^s",
        f"s is the slope of the logarithm of the tree's length over ln n, for P/8, P/4, P/2 and P distinct points. {FEWER}",
    ),
    "number of eigenvalues above s^2 (1 + sqrt(D/P))^2, s^2 the noise whose Marchenko-Pastur median the median eigenvalue is; NaN of fewer points"
    " than dimensions": (
        r"\#\left\{ i : \lambda_i > s^2 \left(1 + \sqrt{D / P}\right)^2 \right\}",
        "s² is the noise whose Marchenko–Pastur median the median eigenvalue is. NaN of fewer points than dimensions.",
    ),
    f"E (N - E N)^3 / sd(N)^3, {OCCURS}": (
        r"\frac{\mathrm{E}\, (N - \mathrm{E}\, N)^3}{\left(\mathrm{E}\, (N - \mathrm{E}\, N)^2\right)^{3/2}}",
        OCCURRENCES,
    ),
    f"max N / 10, {OCCURS}": (r"\frac{\max N}{10}", OCCURRENCES),
    "share of common points among the 10 nearest distinct points of each point that is the first of its copies in both clouds": (
        r"\frac{1}{n} \sum_i \frac{\left| N_{10}^X(i) \cap N_{10}^Y(i) \right|}{10}",
        "N are the 10 nearest distinct points in each cloud, of each point that is the first of its copies in both.",
    ),
}


def split_off(formula: str) -> tuple[str, str]:
    """The formula, and in words which part of the cloud it is of."""
    for words in (" of the cloud without", " without the longest"):
        before, found, after = formula.partition(words)
        if found:
            return before.removesuffix(","), f"{found.strip()}{after}"
    return formula, ""


def stale(formulas: Iterable[str]) -> list[str]:
    """What is typeset here and is no formula of these."""
    return sorted({*LATEX} - {split_off(formula)[0] for formula in formulas})
