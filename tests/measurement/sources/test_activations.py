import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.measure import DEFAULT, FURTHER, NULLS, MeasureConfig
from anisoscope.config.model import ModelConfig
from anisoscope.data import frequency
from anisoscope.measurement.families import dimension, leading
from anisoscope.measurement.families import entries as families
from anisoscope.measurement.families.frequency import OF_TYPES
from anisoscope.measurement.families.projection import VECTORS
from anisoscope.measurement.intervals import KINDS, summarise
from anisoscope.measurement.nulls import PERMUTATIONS, gaussian, permuted
from anisoscope.measurement.resamples import Cloud, leave_out, search, sections
from anisoscope.measurement.sources import activations
from anisoscope.measurement.sources.probe import POSITION_SETS, make_probe, with_types
from anisoscope.models.masks import visible_keys
from anisoscope.models.transformer import build, readout
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig
from tests import (
    reference,
    reference_comparison,
    reference_frequency,
    reference_leading,
    reference_scale,
    reference_similarity,
    reference_spectrum,
)

VOCAB, CONTEXT, POINTS, BATCHES, FOLDS = 31, 12, 96, 2, 4
TOKENS, KINDS_OF_TOKENS = np.random.default_rng(0).integers(0, VOCAB, 24 * CONTEXT), 4  # of a kind there are enough
PROBE = make_probe(TOKENS, CONTEXT, POINTS, BATCHES, FOLDS, 0)
OF_KINDS = PROBE._replace(tokens_GWT=PROBE.tokens_GWT // 8, shuffled_GWT=PROBE.shuffled_GWT // 8)
PROBE = PROBE._replace(types=with_types(OF_KINDS, TOKENS // 8, KINDS_OF_TOKENS).types)
FAMILIES, QUANTITIES, COORDINATES = DEFAULT, families.quantities(), families.coordinates()
MEASURED = {
    name for name, quantity in QUANTITIES.items() if not quantity.derived and families.family_of(name) in FAMILIES
}
SIZES = {"layer": 3, "other_layer": 3, "block": 2, "head": 2, "batch": BATCHES, "positions": len(POSITION_SETS)}
SIZES |= {name: len(values) for name, values in COORDINATES.items()} | dict.fromkeys(KINDS, 5)
SLOW = ("dimension", "scale", "similarity")
SPECTRAL = {
    "anisotropy": reference_spectrum.anisotropy,
    "anisotropy_uncentred": reference_spectrum.anisotropy_uncentred,
    "participation_ratio": reference_spectrum.participation_ratio,
    "participation_ratio_corrected": reference_spectrum.participation_ratio_corrected,
    "effective_rank": reference_spectrum.effective_rank,
    "rankme": reference_spectrum.rankme,
    "stable_rank": reference_spectrum.stable_rank,
    "isoscore": reference_spectrum.isoscore,
    "isoscore_star": reference_spectrum.isoscore_shrunk,
    "alpha_req": lambda cloud: reference_spectrum.alpha_req(cloud)[0],
    "alpha_req_r2": lambda cloud: reference_spectrum.alpha_req(cloud)[1],
}
STATISTICS = (
    *("score_mean", "score_std", "score_std_within", "attention_entropy", "attention_max", "attention_min"),
    *("attention_first", "attention_most"),
)


def tiny(mask):
    """Rotary, so that layer 0 is full of copies."""
    config = ModelConfig(layers=2, width=16, heads=2, context=CONTEXT, mask=mask, positions="rotary")
    model = build(config, VOCAB, "float32")
    params = model.init(jax.random.key(0))
    return model.apply, jax.tree.map(lambda leaf: 5 * leaf + 0.1, params)  # scores far from 0, a drift to be seen


def program(mask, families=FAMILIES, nulls=NULLS, folds=FOLDS, over_clouds=jax.lax.map):
    apply, params = tiny(mask)
    settings = MeasureConfig(
        points=POINTS, batches=BATCHES, folds=folds, families=families, nulls=nulls, projected_head=1
    )
    others = {"previous": 1.1, "last": 1.3} if "comparison" in families else {}
    others = {name: jax.tree.map(lambda leaf, by=by: leaf**2 * by + leaf, params) for name, by in others.items()}
    return made(apply, settings, over_clouds), params, others


def made(apply, settings, over_clouds=jax.lax.map):
    """measure(params, others, probe, visible_TT)."""
    read = functools.partial(readout, ModelConfig())
    spec = activations.Spec(activations.of_model(apply, settings, read), settings, over_clouds=over_clouds)
    return lambda params, others, probe, visible_TT: activations.measure_batches(
        spec, params, others, activations.of_probe(probe, settings, visible_TT)
    )


def visible(mask):
    return visible_keys(ModelConfig(mask=mask), CONTEXT)


@functools.cache
def measured(mask, families=FAMILIES, nulls=NULLS, folds=FOLDS):
    measure, *params = program(mask, families, nulls, folds)
    return jax.tree.map(np.asarray, jax.jit(measure)(*params, PROBE, visible(mask)))


def of(mask, cloud="measured", *settings):
    return measured(mask, *settings).values[cloud]


def by_fold(x):
    return x.reshape(FOLDS, -1, *x.shape[1:])


def jackknife(x):
    """The whole of it, then all but one fold after another."""
    return [x, *(np.concatenate(np.delete(by_fold(x), fold, axis=0)) for fold in range(FOLDS))]


def cut(x):
    """The whole of it, then its sections."""
    return [x, *by_fold(x)]


def slow_cloud(cloud):
    """Of the whole cloud and every resample, in float64."""
    values = {name: [] for name in MEASURED if QUANTITIES[name].resampling and families.family_of(name) in SLOW}
    values = {name: value for name, value in values.items() if not name.endswith("_without")}  # of `slow_leading`
    values |= {
        name: [] for name in ("coordinate_share", "coordinate_kurtosis", "activation_kurtosis", "coordinate_peak")
    }
    for part in jackknife(cloud):
        shares = [reference_spectrum.coordinate_share(part, top) for top in COORDINATES["top"]]
        values["coordinate_share"].append(shares)
        values["coordinate_kurtosis"].append(reference_spectrum.coordinate_kurtosis(part))
        values["activation_kurtosis"].append(reference_spectrum.activation_kurtosis(part))
        values["coordinate_peak"].append(reference_spectrum.coordinate_peaks(part).mean())
        values["log_partition_isotropy"].append(reference_similarity.log_partition_isotropy(part, cloud))
        drift, residual = reference_similarity.mean_cosine_parts(part)
        values["mean_cosine"].append(reference.mean_cosine(part))
        values["mean_cosine_drift"].append(drift)
        values["mean_cosine_residual"].append(residual)
        values["drift"].append(reference.drift(part))
        values["mean_norm"].append(reference.mean_norm(part))
    for part in cut(cloud):
        x = reference.log_ratios(part)
        distances = reference_scale.distances(part)
        values["twonn"].append(reference.twonn(part))
        values["twonn_mle"].append(reference.twonn_mle(part))
        values["twonn_bayes"].append((2 + len(x)) / (5 + x.sum()))
        values["twonn_bayes_deviation"].append(np.sqrt(2 + len(x)) / (5 + x.sum()))
        values["twonn_microscope"].append(reference.twonn_microscope(part)[0])
        fits = [2 * first <= distances.shape[1] for first in COORDINATES["neighbours"]]
        curve = [
            reference_scale.gride(distances, first) if fit else np.nan
            for first, fit in zip(COORDINATES["neighbours"], fits, strict=True)
        ]
        values["gride"].append(curve)
        nearest = min(20, distances.shape[1])
        values["levina_bickel"].append(reference_scale.levina_bickel(distances, nearest))
        inverse = 1 / reference_scale.local_dimensions(distances, nearest)
        values["local_dimension"].append([1 / np.quantile(inverse, 1 - q) for q in COORDINATES["quantile"]])
    if len(reference.log_ratios(cloud)) < min(64, len(cloud) / 2):
        for name in ("twonn", "twonn_mle", "twonn_bayes", "twonn_bayes_deviation", "gride", "levina_bickel"):
            values[name] = np.full_like(values[name], np.nan)
        values["local_dimension"] = np.full_like(values["local_dimension"], np.nan)
    _, useless, dropped = reference.twonn_microscope(cloud)
    single = {"massive_activation": reference_spectrum.coordinate_peaks(cloud).max()}
    single |= {"duplicate_points": reference.duplicate_points(cloud), "twonn_dropped": reference.twonn_dropped(cloud)}
    single |= {"microscope_useless": useless, "microscope_dropped": dropped}
    single["decimation"] = [
        reference_scale.decimation(cloud, factor) if np.isfinite(values["twonn"][0]) else np.nan
        for factor in COORDINATES["factor"]
    ]
    return {name: np.moveaxis(np.array(value), 0, -1) for name, value in values.items() if len(value)} | single


def slow_spectra(cloud):
    """Of the whole cloud, and without its top coordinates; replicates follow to first order only, by the spectrum."""
    order = np.argsort(-reference.float64(cloud).var(0))
    without = [np.delete(cloud, order[:top], axis=1) for top in COORDINATES["top"]]
    values = {name: read(cloud) for name, read in SPECTRAL.items()}
    return values | {"anisotropy_left_out": [reference_spectrum.anisotropy(part) for part in without]}


def slow_leading(cloud, picks):
    """Of the whole cloud and every resample, in float64; who is long and the first direction are those of the whole."""
    window, first = picks // CONTEXT, picks % CONTEXT == 0
    points, long = np.arange(len(cloud)), reference_leading.longest(cloud, max(1, len(cloud) // 100))
    kept = [np.isin(points, part) for part in jackknife(points)]
    values = {name: [] for name in ("first_share", "first_share_by_norm", "longest_share")}
    for keep in kept:
        values["first_share"].append(reference_leading.share_between(cloud[keep], first[keep]))
        values["first_share_by_norm"].append(reference_leading.share_by_norm(cloud[keep], first[keep]))
        values["longest_share"].append(reference_leading.share_between(cloud[keep], long[keep]))
    left = [~reference_leading.longest_of_each(cloud, window), ~long]
    without = [reference_leading.first_direction(cloud, one, kept)[0] for one in left]
    _, kurtosis, between = reference_leading.first_direction(cloud, np.ones_like(first), kept, picks % CONTEXT)
    more = {"anisotropy_without": without, "leading_kurtosis": kurtosis, "leading_by_position": between}
    for name, read in (("mean_cosine", reference.mean_cosine), ("drift", reference.drift)):
        more[f"{name}_without"] = [[read(cloud[keep & one]) for keep in kept] for one in left]
    sections = [np.isin(points, part) for part in cut(points)]
    twonn = [[reference.twonn(cloud[part & one]) for part in sections] for one in left]
    enough = [[len(reference.log_ratios(cloud[one])) >= min(64, len(cloud) / 2)] for one in left]
    more["twonn_without"] = np.where(enough, twonn, np.nan)
    entropy = np.array([reference_leading.entropy(cloud[window == number]) for number in range(max(window) + 1)])
    more["window_entropy"] = [entropy[np.unique(window[keep])].mean() for keep in kept]
    if not first.any():
        values |= dict.fromkeys(("first_share", "first_share_by_norm"), np.full(len(kept), np.nan))
    return {name: np.array(value) for name, value in (values | more).items()} | {
        "norm_ratio": reference_leading.norm_ratio(cloud)
    }


def slow_frequency(cloud, tokens, picks):
    """Of the whole cloud and every resample, in float64; which types are frequent is decided on the whole."""
    points = np.arange(len(cloud))
    kept = [np.isin(points, part) for part in jackknife(points)]
    values = {name: [] for name in MEASURED if families.family_of(name) == "frequency"}
    bins = frequency.bins(frequency.log_frequency(TOKENS // 8, 1, KINDS_OF_TOKENS))[tokens.ravel()[picks] // 8]
    kinds = reference_frequency.frequent(tokens.ravel()[picks] // 8, 20)
    distances = [reference_frequency.distances(cloud, kinds, len(cloud) // 20, keep) for keep in kept]
    norms = [np.linalg.norm(cloud, axis=1)] * len(kept)
    binned = {"norm_by_frequency": norms, "centroid_distance_by_frequency": distances}
    for name, rows in binned.items():
        read = zip(rows, kept, strict=True)
        found = [reference_frequency.mean_by_bin(row, bins, len(frequency.BINS), keep) for row, keep in read]
        values[name] = np.transpose(found)
    for length in frequency.LENGTHS:
        types = frequency.types(tokens // 8, length, KINDS_OF_TOKENS).ravel()[picks]
        logs = np.where(types < 0, 0, frequency.log_frequency(TOKENS // 8, length, KINDS_OF_TOKENS)[types])
        number, most = reference_frequency.frequent(types, 20), len(cloud) // 20
        found = [reference_frequency.of_types(cloud, number, logs, most, keep) for keep in kept]
        for name, value in zip(OF_TYPES, np.transpose(found), strict=True):
            values[name].append(value)
        values["frequent_points"].append((number < most).sum())
        values["frequent_types"].append(len(set(number) - {most}))
    return values


def slow_head(q, k, picks, visible):
    values = {name: [] for name in MEASURED if families.family_of(name) == "attention" and QUANTITIES[name].resampling}
    q_clouds, k_clouds = (jackknife(x.reshape(-1, x.shape[-1])[picks]) for x in (q, k))
    for q_part, k_part, q_cloud, k_cloud in zip(jackknife(q), jackknife(k), q_clouds, k_clouds, strict=True):
        for name, value in zip(STATISTICS, reference.attention_statistics(q_part, k_part, visible), strict=True):
            values[name].append(value)
        values["query_drift"].append(reference.drift(q_cloud))
        values["key_drift"].append(reference.drift(k_cloud))
        values["query_fluctuation"].append(reference.fluctuation(q_cloud))
        values["key_fluctuation"].append(reference.fluctuation(k_cloud))
        of_means, share = reference.scores_and_means(q_part, k_part, visible, q_cloud, k_cloud)
        values["score_of_means"].append(of_means)
        values["score_share_of_means"].append(share)
        means = (reference.float64(x).mean(0) for x in (q_cloud, k_cloud))
        values["query_key_alignment"].append(reference.cosine(*means))
        values["query_cosine"].append(reference.mean_cosine(q_cloud))
        values["key_cosine"].append(reference.mean_cosine(k_cloud))
        values["query_key_cosine"].append(reference.cross_cosine(q_cloud, k_cloud))
    return values


def activations_of(mask, tokens):
    apply, params = tiny(mask)
    return jax.tree.map(np.asarray, jax.jit(apply)(params, tokens)[1])


class Near:
    """Asserts that values agree, and records the largest difference of each family, which `make gpu` reports."""

    def __init__(self, record_property):
        self.record, self.checked, self.apart = record_property, set(), {}

    def __call__(self, name, got, value, rtol=1e-4, atol=1e-6):
        np.testing.assert_allclose(got, value, rtol=rtol, atol=atol, err_msg=name)
        got, value = np.asarray(got, np.float64), np.asarray(value, np.float64)
        known = np.isfinite(value)
        if known.any():
            relative = np.abs(got - value)[known] / (np.abs(value[known]) + atol / rtol)
            family = families.family_of(name)
            self.apart[family] = max(self.apart.get(family, 0.0), float(relative.max()))
        self.checked.add(name)

    def tell(self):
        for family, value in self.apart.items():
            self.record(f"from float64: {family}", value)


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["measured", "shuffled"])
def test_agrees_with_slow_loops_in_float64_on_every_resample(cloud, record_property):
    found, near = of("causal", cloud), Near(record_property)
    tokens_GWT = PROBE.shuffled_GWT if cloud == "shuffled" else PROBE.tokens_GWT
    for batch, positions in np.ndindex(BATCHES, len(POSITION_SETS)):
        activations, picks = activations_of("causal", tokens_GWT[batch]), PROBE.picks_SGP[positions, batch]
        for layer, resid in enumerate(activations.resid_LBTD):
            picked = resid.reshape(-1, resid.shape[-1])[picks]
            for name, value in slow_cloud(picked).items():
                got = found[name][batch, positions, layer]
                if families.family_of(name) == "dimension" and QUANTITIES[name].resampling:
                    got, value = 1 / got, 1 / value  # a mean of ln(r2/r1), whose float32 error is 1e-7 where r2 = r1
                near(name, got, value)
            for name, value in slow_spectra(picked).items():
                near(name, found[name][batch, positions, layer, ..., 0], value)
            for name, value in slow_leading(picked, picks).items():
                got = found[name][batch, positions, layer]
                if name == "twonn_without":
                    got, value = 1 / got, 1 / value
                near(name, got, value, rtol=1e-3)
            for name, value in slow_frequency(picked, tokens_GWT[batch], picks).items():
                near(name, found[name][batch, positions, layer], value, rtol=1e-3, atol=1e-4)
        visible = np.asarray(visible_keys(ModelConfig(), CONTEXT)).copy()
        if POSITION_SETS[positions] == "without_first":
            visible[0] = visible[:, 0] = False
        for block, head in np.ndindex(2, 2):
            q, k = (x[block, :, :, head] for x in (activations.q_NBTHK, activations.k_NBTHK))
            for name, value in slow_head(q, k, picks, visible).items():
                near(name, found[name][batch, positions, block, head], value)
        weight = found["attention_first"][batch, positions, ..., 0]  # NaN without position 0
        sinks = np.where(np.isnan(weight).any(axis=-1), np.nan, (weight > 0.3).mean(axis=-1))
        near("sink_heads", found["sink_heads"][batch, positions], sinks)
    assert near.checked == {name for name in MEASURED if families.family_of(name) != "comparison"}
    assert (found["duplicate_points"][:, :, 0] > 0).all()
    near.tell()


@pytest.mark.slow
def test_keeps_queries_and_keys_of_one_head_of_the_first_batch():
    activations = activations_of("causal", PROBE.tokens_GWT[0])
    for name, x_NBTHK in (("query_vectors", activations.q_NBTHK), ("key_vectors", activations.k_NBTHK)):
        for block in range(2):
            expected = x_NBTHK[block, :, :, 1].reshape(-1, 8)[PROBE.picks_SGP[0, 0]]
            np.testing.assert_allclose(measured("causal").vectors[name][block], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_compares_layers_and_checkpoints(record_property):
    _, params, others = program("causal")
    found, near = of("causal", "measured", ("comparison",), ("permuted",)), Near(record_property)
    apply, _ = tiny("causal")
    tokens, picks = PROBE.tokens_GWT[1], PROBE.picks_SGP[0, 1]

    def clouds(params):
        resid = np.asarray(jax.jit(apply)(params, tokens)[1].resid_LBTD)
        return [x.reshape(-1, x.shape[-1])[picks] for x in resid]

    own = clouds(params)
    pairs = {("layers", i, j): (own[i], own[j]) for i, j in np.ndindex(3, 3)}
    pairs |= {(name, i): (own[i], clouds(other)[i]) for name, other in others.items() for i in range(3)}
    for (name, *place), pair in pairs.items():
        resampled = zip(*(jackknife(cloud) for cloud in pair), strict=True)
        resampled = list(resampled)
        for kind in ("cka", "cka_unbiased"):
            cka = [getattr(reference_comparison, f"linear_{kind}")(*parts) for parts in resampled]
            near(f"{kind}_{name}", found[f"{kind}_{name}"][(1, 0, *place)], cka)
        resampled = zip(*(cut(cloud) for cloud in pair), strict=True)
        overlap = [reference_comparison.neighbourhood_overlap(*parts, 10) for parts in resampled]
        near(f"overlap_{name}", found[f"overlap_{name}"][(1, 0, *place)], overlap, rtol=1e-6)
    near.tell()


@pytest.mark.slow
def test_the_permuted_null_model_reads_other_windows_of_the_same_batch():
    apply, params = tiny("causal")
    tokens, picks = PROBE.tokens_GWT[1], PROBE.picks_SGP[0, 1]
    resid = np.asarray(jax.jit(apply)(params, tokens)[1].resid_LBTD).reshape(3, -1, 16)
    key = jax.random.split(jax.random.key(0), BATCHES)[1]
    orders = [np.asarray(permuted(picks, len(tokens), CONTEXT, key, number)) for number in range(PERMUTATIONS)]
    for n, m in ((0, 2), (1, 1)):
        expected = np.mean([reference_comparison.linear_cka_unbiased(resid[n, at], resid[m, picks]) for at in orders])
        got = of("causal", "permuted", ("comparison",), ("permuted",))["cka_unbiased_layers"][1, 0, n, m, 0]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("points", [pytest.param(4096, marks=pytest.mark.slow), 4])
def test_a_gaussian_cloud_has_the_spectrum_and_no_features(points):
    cloud = np.random.default_rng(0).standard_exponential((points, 5)) * [4, 3, 2, 1, 1] + 7
    null = np.asarray(gaussian(jnp.asarray(cloud, jnp.float32), jax.random.key(0)))
    found, expected = (reference_spectrum.eigenvalues(x)[: points - 1] for x in (null, cloud))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(null.mean(0), 0, atol=1e-5)
    if points > 4:
        assert abs(((null / null.std(0)) ** 4).mean() - 3) < 0.1
        assert ((cloud - cloud.mean(0)) ** 4 / cloud.var(0) ** 2).mean() > 6


@pytest.mark.parametrize("distinct", [40, pytest.param(5, marks=pytest.mark.slow)])
def test_a_gaussian_cloud_has_the_copies_and_the_spectrum_of_the_distinct_points(distinct):
    generator = np.random.default_rng(0)
    cloud = codebook(generator, distinct, 12, 400)
    null = np.asarray(gaussian(jnp.asarray(cloud), jax.random.key(0)))
    first, pattern = (np.unique(cloud, axis=0, return_index=True, return_inverse=True)[i] for i in (1, 2))
    same = pattern.ravel()[:, None] == pattern.ravel()[None]
    np.testing.assert_array_equal((null[:, None] == null[None]).all(-1), same)
    found, expected = (reference_spectrum.eigenvalues(x[first])[: len(first) - 1] for x in (null, cloud))
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def codebook(generator, distinct, width, points):
    """Points that are copies of a few normal ones, some much more often than others."""
    weight = 1 / np.arange(1, distinct + 1)
    words = generator.normal(size=(distinct, width)).astype(np.float32)
    return words[generator.choice(distinct, points, p=weight / weight.sum())]


@pytest.mark.parametrize("copies", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_gaussian_cloud_does_not_exceed_its_null_model(copies):
    """In 64 dimensions and 512 points a null model drawn from the sample's spectrum is 4 deviations off.

    So is one of 512 distinct points beside a cloud of fewer.
    """
    excess = []
    read = jax.jit(
        lambda cloud_PD: dimension.measure(Cloud(cloud_PD, 8, search(cloud_PD, dimension.FAMILY.neighbours, 8)))
    )
    null_of = jax.jit(gaussian)
    for seed in range(40):
        generator = np.random.default_rng(seed)
        cloud = codebook(generator, 300, 64, 512) if copies else generator.normal(size=(512, 64)).astype(np.float32)
        value, null = (np.asarray(read(x)["twonn"])[None] for x in (cloud, null_of(cloud, jax.random.key(seed))))
        excess.append(summarise(value, "sections", null))
    mean = np.mean([one.mean for one in excess])
    assert abs(mean) < 3 * np.std([one.mean for one in excess]) / np.sqrt(40)
    assert np.mean([one.low <= 0 <= one.high for one in excess]) >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", ["twonn", "gride"])
def test_the_gaussian_null_model_is_measured_like_the_text(name):
    text, null = (of("causal", cloud)[name] for cloud in ("measured", "gaussian"))
    assert text.shape == null.shape
    assert (null != text).any()


@pytest.mark.slow
def test_shapes_are_the_declared_dimensions():
    measure, *params = program("causal")
    shapes = jax.eval_shape(measure, *params, PROBE, visible("causal"))
    assert {shapes.vectors[name].shape for name in VECTORS} == {(2, POINTS, 8)}
    assert shapes.values["measured"].keys() == MEASURED
    for cloud, own in shapes.values.items():
        wanted = {
            name for name in MEASURED if cloud in ("measured", *families.FAMILIES[families.family_of(name)].nulls)
        }
        assert own.keys() == wanted
        for name, found in own.items():
            assert found.shape == tuple(SIZES[dim] for dim in QUANTITIES[name].raw_dims), name
            assert found.dtype == (jnp.int32 if QUANTITIES[name].units == "points" else jnp.float32), name


@pytest.mark.parametrize(  # quick: one of a cloud, of layers, of heads, of vectors
    "family",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name not in ("attention", "projection", "readout")),
        )
        for name in families.FAMILIES
    ],
)
def test_a_family_alone_gives_its_quantities_and_no_others(family):
    measure, *params = program("causal", (family,), NULLS if family in FURTHER else ())
    shapes = jax.eval_shape(measure, *params, PROBE, visible("causal"))
    own = {name for name, one in families.FAMILIES[family].quantities.items() if not one.derived}
    assert {cloud for cloud, found in shapes.values.items() if found.keys() == own} - {"measured"} == (
        {*families.FAMILIES[family].nulls} - {"untrained"} if family in FURTHER else set()
    )
    assert shapes.values["measured"].keys() == own
    for name in own:
        assert shapes.values["measured"][name].shape == tuple(SIZES[dim] for dim in QUANTITIES[name].raw_dims), name
    assert set(shapes.vectors) == set({"projection": VECTORS, "leading": leading.VECTORS}.get(family, ()))


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [("dimension",), ("similarity", "comparison")])
def test_values_do_not_depend_on_the_other_families(chosen):
    """In particular, how many neighbours are searched for."""
    for name, value in of("causal", "measured", chosen, ()).items():
        np.testing.assert_allclose(value, of("causal")[name], rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_one_fold_is_no_resample():
    found = of("causal", "measured", ("spectrum", "dimension", "attention"), (), 1)
    for name in found.keys() & MEASURED:
        assert found[name].shape[-1] == (1 if QUANTITIES[name].resampling else 2 + ("layer" in QUANTITIES[name].dims))
    for name in ("anisotropy", "twonn", "attention_entropy"):
        whole = of("causal")[name][..., :1]
        np.testing.assert_allclose(found[name], whole, rtol=2e-5, err_msg=name)


def test_one_trace_serves_all_parameters():
    apply, params = tiny("causal")
    traces = []

    def counted(params, tokens_BT):
        traces.append(1)
        return apply(params, tokens_BT)

    settings = MeasureConfig(points=POINTS, batches=BATCHES, folds=FOLDS, families=("spectrum",), nulls=())
    measure = jax.jit(made(counted, settings))
    several = [jax.tree.map(lambda leaf, by=by: leaf * by, params) for by in (1.0, 0.5, 2.0)]
    found = [measure(one, {}, PROBE, visible("causal")).values for one in several]
    assert len(traces) == 1
    assert found[0]["measured"]["anisotropy"].tolist() != found[1]["measured"]["anisotropy"].tolist()


UNDECOMPOSED = ("dimension", "scale", "comparison", "attention", "frequency")


@pytest.mark.slow
def test_clouds_at_once_change_nothing():
    """As on an accelerator: all layers of an input together, all heads of a block. Nothing that is decomposed: on a CPU
    jaxlib's decompositions of several matrices at once can wait for each other for ever.
    """
    settings = UNDECOMPOSED, ("shuffled", "untrained")
    measure, *params = program("causal", *settings, over_clouds=mesh.over_clouds(MeshConfig(clouds=3), 1))
    found = jax.jit(measure)(*params, PROBE, visible("causal"))
    alone = measured("causal", *settings)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5), found, alone)


@pytest.mark.parametrize(("asked", "steps"), [(None, 6), (1, 6), (3, 2), (4, 2), (9, 1)])
def test_clouds_at_once_come_in_groups_of_one_size(asked, steps):
    over = mesh.over_clouds(MeshConfig(clouds=asked), 1)
    assert f"length={steps}" in str(jax.make_jaxpr(lambda x: over(jnp.sin, x))(jnp.zeros((6, 5))))


@pytest.mark.slow
def test_jit_changes_nothing():
    measure, *params = program("causal", ("similarity",), ())
    eager = measure(*params, jax.tree.map(jnp.asarray, PROBE), visible("causal"))
    for name, value in eager.values["measured"].items():
        compiled = of("causal", "measured", ("similarity",), ())[name]
        np.testing.assert_allclose(value, compiled, rtol=1e-4, atol=1e-6, err_msg=name)


def test_leaving_out_and_cutting_go_by_whole_folds():
    np.testing.assert_array_equal(leave_out(2, 4), [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
    np.testing.assert_array_equal(leave_out(1, 2), [[1, 1]])
    np.testing.assert_array_equal(sections(jnp.arange(8.0)[:, None], 8)[:, :, 0], [[0, 1], [2, 3], [4, 5], [6, 7]])
