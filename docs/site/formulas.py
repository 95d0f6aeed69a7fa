"""Formulas of quantities in LaTeX, by the words that their entries have for them; and what is left to say in words.

A formula that is not here is shown in its own words. One that no quantity has is an error when the site is built.
"""

FEWER = "NaN below 64 distinct points, or half of a cloud of fewer than 128."
OVER = ", E over the cloud's points"

LATEX: dict[str, tuple[str, str]] = {
    "max(lambda) / sum(lambda)": (
        r"\frac{\lambda_1}{\sum_i \lambda_i}",
        "The eigenvalues λ are those of the covariance, largest first.",
    ),
    "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centred": (
        r"\frac{\lambda_1(S)}{\operatorname{tr} S}, \qquad S = \frac{1}{P} \sum_i x_i x_i^{\top}",
        "Not centred.",
    ),
    "(sum lambda)^2 / sum(lambda^2)": (r"\frac{\left(\sum_i \lambda_i\right)^2}{\sum_i \lambda_i^2}", ""),
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
    "mean over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower": (
        r"\frac{1}{P} \sum_i \frac{\max_j |x_{ij}|}{\operatorname{median}_j |x_{ij}|}",
        "Of two medians the lower.",
    ),
    "largest over points i of max_j |x_ij| / median_j |x_ij|, of two medians the lower": (
        r"\max_i \frac{\max_j |x_{ij}|}{\operatorname{median}_j |x_{ij}|}",
        "Of two medians the lower.",
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
        "Of two medians the lower.",
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
    f"sqrt(E |q - E q|^2){OVER}": (r"\sqrt{\mathrm{E}\, |q - \mathrm{E}\, q|^2}", "E is over the points of the cloud."),
    f"sqrt(E |k - E k|^2){OVER}": (r"\sqrt{\mathrm{E}\, |k - \mathrm{E}\, k|^2}", "E is over the points of the cloud."),
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
    "mean_i min_j p_ij, visible j": (r"\left\langle \min_j p_{ij} \right\rangle_i", "Of the visible keys j."),
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
    "mean_cosine - mean_cosine_drift": (r"\text{mean\_cosine} - \text{mean\_cosine\_drift}", ""),
    "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped points counted in F": (
        r"-\ln\left(1 - \frac{u + j}{n + u}\right) = d\, \ln \frac{r_{2,(j)}}{r_{1,(j)}}",
        "d is the slope of a line through the origin, of the smallest 20 % of the ratios; u dropped points are counted.",
    ),
    "share of common points among the 10 nearest distinct points of each point that is the first of its copies in both clouds": (
        r"\frac{1}{n} \sum_i \frac{\left| N_{10}^X(i) \cap N_{10}^Y(i) \right|}{10}",
        "N are the 10 nearest distinct points in each cloud, of each point that is the first of its copies in both.",
    ),
}
