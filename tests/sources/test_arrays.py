"""Arrays through the panel: values are those of all their points, intervals those of their folds,
in chunks too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from anisoscope import make_measure, measure, measure_attention
from anisoscope.engine.intervals import clip, estimate
from anisoscope.sources import array_checks, array_chunks, folds
from tests import (
    reference,
    reference_comparison,
    reference_leading,
    reference_logit_lens,
    reference_spectrum,
)
from tests.sources.array_clouds import CLOUDS, HEADS, POINTS, UNEQUAL_P, WIDTH, measured, value

pytestmark = pytest.mark.filterwarnings("ignore:clusters. 12 of 1 to 31 points:UserWarning")
PLACE_P = np.concatenate([np.arange(size) for size in np.bincount(UNEQUAL_P)])
# the first token of each cluster lies far out in layer 0
FAR_FIRST = CLOUDS + 50 * (PLACE_P == 0)[:, None] * np.array([1, 0])[:, None, None]
SHUFFLE = np.random.default_rng(1).permutation(POINTS)
LENS = np.random.default_rng(5)
UNEMBEDDING, SCALE = LENS.normal(size=(11, WIDTH)), LENS.normal(size=WIDTH)
TARGETS = LENS.integers(-1, 11, POINTS)


@pytest.fixture(scope="module")
def unequal():
    """Shuffled points of unequal clusters with places, targets and an unembedding: one program."""
    return measure(
        [*FAR_FIRST[:, SHUFFLE]],
        UNEQUAL_P[SHUFFLE],
        token_positions=PLACE_P[SHUFFLE],
        unembedding=({"kind": "rms", "scale": SCALE, "epsilon": 1e-6}, UNEMBEDDING),
        targets=TARGETS[SHUFFLE],
        families=("similarity", "leading"),
        nulls=(),
        folds=4,
    )


def test_arrays_go_through_the_panel_without_a_model():
    table = measured([*CLOUDS], layer_names=("first", "second"))
    for label, cloud in zip(("first", "second"), CLOUDS, strict=True):
        anisotropy, twonn = reference_spectrum.anisotropy(cloud), reference.twonn(cloud)
        np.testing.assert_allclose(value(table, "anisotropy", layer=label), anisotropy, rtol=1e-5)
        np.testing.assert_allclose(value(table, "twonn", layer=label), twonn, rtol=1e-4)
    cka = reference_comparison.linear_cka(*CLOUDS)
    np.testing.assert_allclose(
        value(table, "cka_layers", layer="first", other_layer="second"), cka, rtol=1e-4
    )
    assert {"formula", "units", "source"} <= table.anisotropy.attrs.keys()
    assert np.isfinite(table.twonn_excess.sel(null="gaussian", statistic="low")).all()


@pytest.mark.slow
def test_the_value_is_of_all_points_whatever_their_clusters_and_order():
    families = ("similarity", "comparison")
    first, *others = (
        measured([*CLOUDS], UNEQUAL_P, families=families),
        measured([*CLOUDS[:, SHUFFLE]], UNEQUAL_P[SHUFFLE].astype(str), families=families),
        measured([*CLOUDS[:, SHUFFLE]], families=families),
    )
    assert first.attrs["folds_in_words"] == "4 of 21 to 31 points, whole clusters, of 12"
    for name in ("mean_cosine", "neighbor_overlap_layers", "cka_layers"):
        for other in others:
            np.testing.assert_allclose(value(other, name), value(first, name), rtol=1e-5)


def test_an_interval_of_unequal_clusters_is_that_of_their_folds(unequal):
    label_P = UNEQUAL_P[SHUFFLE]
    cut = folds.cut_folds(POINTS, label_P, 4, 0)
    for layer, cloud in enumerate(FAR_FIRST[:, SHUFFLE]):
        left = [np.linalg.norm(cloud[cut.fold_P != fold].mean(axis=0)) for fold in range(4)]
        values = cut.weight(np.array([[np.linalg.norm(cloud.mean(axis=0)), *left]]), "jackknife")
        expected = clip(estimate(values, "jackknife"), 0, np.inf)
        for end in ("mean", "low", "high"):
            np.testing.assert_allclose(
                unequal.drift.sel(layer=layer, statistic=end), getattr(expected, end), rtol=1e-4
            )
    freedom = [unequal.attrs[f"degrees_of_freedom_{kind}"] for kind in ("jackknife", "sections")]
    assert freedom[0] < freedom[1] < 3


def test_positions_tell_how_much_hangs_on_the_first_tokens(unequal):
    cloud, long = FAR_FIRST[0], reference_leading.longest_of_each(FAR_FIRST[0], UNEQUAL_P)
    share = reference_leading.share_between(cloud, PLACE_P == 0)
    np.testing.assert_allclose(value(unequal, "first_token_variance_share", layer=0), share, 1e-4)
    without = value(
        unequal, "anisotropy_without_longest", without="longest of each window", layer=0
    )
    np.testing.assert_allclose(without, reference_spectrum.anisotropy(cloud[~long]), rtol=1e-4)
    assert np.isfinite(unequal.first_token_variance_share.sel(statistic="low")).all()


def test_an_unembedding_beside_arrays_reads_every_layer_as_the_last(unequal):
    expected = reference_logit_lens.lens(FAR_FIRST, TARGETS, UNEMBEDDING.T, "rms", SCALE, 0.0, 1e-6)
    for name, number in (("entropy", 0), ("divergence", 1), ("rank", 3)):
        found = unequal[f"logit_lens_{name}"]
        own = np.nanmean(expected[number], axis=1)
        np.testing.assert_allclose(found.sel(statistic="mean"), own, rtol=1e-4, atol=1e-5)
        assert (found.sel(statistic="low") <= found.sel(statistic="high")).all()


def test_few_clusters_give_a_warning_and_few_degrees_of_freedom():
    vectors = array_checks.read_vectors(CLOUDS[0], np.arange(POINTS) // 32)
    with pytest.warns(UserWarning, match=r"clusters: 3 of 32 to 32 .* 2\.0 degrees of freedom"):
        assert folds.warn_of_few(vectors, chunks := folds.cut_chunks(vectors, 1, 8, 0))
    assert folds.describe(vectors, chunks)["degrees_of_freedom_jackknife"] == 2
    for sizes in ([1, 4, 14, 53, 200], [5, 5, 5, 5, 5, 5, 5, 60]):  # many, and one outweighs all
        label_P = np.repeat(np.arange(len(sizes)), sizes)
        vectors = array_checks.read_vectors(np.ones((len(label_P), 2)), label_P)
        with pytest.warns(UserWarning, match=rf"{len(sizes)} of .* weigh as 1\.. equal ones"):
            folds.warn_of_few(vectors, folds.cut_chunks(vectors, 1, 8, 0))


def test_queries_and_keys_get_the_attention_family_with_mask_and_bias():
    layers, heads, windows, time = 2, 2, 9, 8  # a window more than folds take
    q, k = np.random.default_rng(2).normal(size=(2, layers, heads, windows, time, 5))
    causal = np.tril(np.ones((time, time), bool))
    masks = np.stack([causal, np.ones((time, time), bool)])
    bias = np.random.default_rng(3).normal(size=(heads, time, time))
    table = measure_attention(q, k, mask=masks, bias=bias, folds=4)
    assert table.sizes["block"] == layers
    for block, head in np.ndindex(layers, heads):
        # the bias as further coordinates: row i of it times a one-hot vector of the key
        rows = np.broadcast_to(bias[head] * (5 + time) ** 0.5, (windows, time, time))
        scaled = q[block, head] * ((5 + time) / 5) ** 0.5
        hot = np.broadcast_to(np.eye(time), (windows, time, time))
        own_q, own_k = np.concatenate([scaled, rows], -1), np.concatenate([k[block, head], hot], -1)
        expected = reference.attention_statistics(own_q, own_k, masks[block])
        at = {"block": block + 1, "head": head}
        for name, number in (("score_mean", 0), ("attention_entropy", 3)):
            np.testing.assert_allclose(
                value(table, name, **at), expected[number], rtol=1e-4, atol=1e-6
            )
    assert np.isfinite(table.attention_entropy.sel(statistic="low")).all()


def test_a_function_is_one_program_for_all_parameters():
    """Its values are those of its vectors, with windows as clusters that fill no equal folds."""
    traces, tokens = [], np.random.default_rng(4).integers(0, 9, (5, 8))

    def function(table, tokens):
        traces.append(1)
        return [table[tokens], jnp.tanh(table[tokens])]

    own, options = {"first": lambda cloud: cloud[0, 0]}, {"families": "similarity", "nulls": ()}
    measure_params = make_measure(function, tokens, folds=4, metrics=own, **options)
    for seed in range(2):
        table = jax.random.normal(jax.random.key(seed), (9, WIDTH))
        found = measure_params(table)
        assert len(traces) == 1
        plain = np.asarray(function(table, tokens)).reshape(2, -1, WIDTH)
        traces.pop()
        np.testing.assert_allclose(value(found, "first"), plain[:, 0, 0], rtol=1e-6)
        for name in ("drift", "mean_cosine"):
            expected = [getattr(reference, name)(cloud) for cloud in plain]
            np.testing.assert_allclose(value(found, name), expected, rtol=1e-4)
            assert np.isfinite(found[name].sel(statistic="low")).all()


def test_chunks_are_measured_by_themselves_and_averaged():
    """Chunks have whole clusters; the interval is that of equally many batches."""
    labels = np.arange(96) % 24  # no run of points is of whole clusters
    found = measure([*CLOUDS], labels, families="similarity", folds=3, num_chunks=2)
    rows = folds.cut_rows(96, labels, 2, 0)
    assert np.unique(np.concatenate(rows)).size == 96
    assert not set(labels[rows[0]]) & set(labels[rows[1]])
    each = [measure([*CLOUDS[:, one]], labels[one], families="similarity", folds=3) for one in rows]
    for name in ("mean_cosine", "drift"):
        expected = np.mean([value(one, name) for one in each], axis=0)
        np.testing.assert_allclose(value(found, name), expected, rtol=1e-6)
    ends = [one.mean_cosine.sel(statistic=["high", "low"]) for one in (found, *each)]
    widths = zip(ends, (4, 2, 2), strict=True)
    errors = [(high - low) / 2 / stats.t.ppf(0.975, freedom) for (high, low), freedom in widths]
    np.testing.assert_allclose(errors[0], np.sqrt(errors[1] ** 2 + errors[2] ** 2) / 2, rtol=1e-5)
    assert (found.attrs["batches"], found.attrs["points"]) == (2, 96)


@pytest.mark.slow
def test_clouds_have_independent_null_draws():
    """One draw for all would not average out."""
    cloud = np.random.default_rng(6).normal(size=(64, 24)) * np.arange(1, 25) ** -0.75
    given = {"families": ("dimension",), "nulls": ("gaussian",), "folds": 2}
    rotated = np.roll(cloud, 1, axis=1)  # whose dimension is the same
    both = measure([cloud, rotated], **given)
    alone = [measure(rotated, seed=seed, **given) for seed in range(3)]
    reordered = measure(np.asfortranarray(rotated), **given)
    np.testing.assert_array_equal(reordered.twonn_excess, alone[0].twonn_excess)
    nulls = [
        value(one, "twonn") - value(one, "twonn_excess", null="gaussian") for one in (both, *alone)
    ]
    assert nulls[0][1] == nulls[1]
    assert len({float(null) for null in (*nulls[0], *nulls[1:])}) == 4


@pytest.mark.slow
def test_heads_are_measured_in_chunks_of_windows():
    heads = {"queries": HEADS, "keys": HEADS[..., ::-1], "mask": "causal", "folds": 1}
    found = measure_attention(**heads, num_chunks=2)
    each = [
        measure_attention(HEADS[:, :, [w]], HEADS[:, :, [w], :, ::-1], mask="causal", folds=1)
        for w in (0, 1)
    ]
    expected = np.mean([value(one, "attention_entropy") for one in each], axis=0)
    np.testing.assert_allclose(value(found, "attention_entropy"), expected, rtol=1e-5)
    assert found.attrs["windows"] == 2  # of three


def degenerate(cloud):
    counts = array_chunks.count_degenerate(cloud.astype(np.float32))
    return array_chunks.describe_degenerate([[counts]]).get("degenerate", "")


def test_zeros_copies_and_ties_are_counted():
    cloud = CLOUDS[1].copy()
    cloud[4:7], cloud[40] = 0, cloud[50]
    cloud[5] = -0.0
    cloud = np.c_[cloud, np.zeros((96, 2))]
    options = {"families": "similarity", "folds": 1, "nulls": ()}
    table = measure(cloud, **options)
    assert table.attrs["degenerate"] == "3 zero rows, 2 constant columns, 3 duplicates in layer 0"
    close = np.concatenate([CLOUDS[0, :86], CLOUDS[0, :9] * (1 + 1e-7), CLOUDS[0, :1]])
    close = np.c_[close, CLOUDS[1, :, :2]]
    close[86:] = np.c_[close[86:, :6], close[[*range(9), 0], 6:]]  # copies in every coordinate
    found = measure(close, **options)
    assert found.attrs["degenerate"] == "10 duplicates in layer 0"
    plain = np.c_[CLOUDS[0], CLOUDS[1, :, :2]]
    assert "96 points of few whole numbers" in degenerate((plain > 0).astype(np.int8))
    assert degenerate(plain) == ""
    plain[:, 0], plain[:48, 1] = 7, 0  # the second is constant in one half alone
    halves = [array_chunks.count_degenerate(half) for half in np.split(plain, 2)]
    words = array_chunks.describe_degenerate([halves])["degenerate"]
    assert words == "1 constant columns in layer 0"
    unit = cloud[cloud.any(axis=1)]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[~np.eye(93, dtype=bool)].mean()  # zeros have no direction
    np.testing.assert_allclose(value(table, "mean_cosine"), cosine, rtol=1e-5)


def test_neighbors_are_searched_among_a_sample_of_whole_clusters(caplog):
    cluster_P, few = np.arange(POINTS) // 4, {"nulls": (), "quiet": True}
    families = {"families": ("similarity", "dimension")}
    whole = measure(CLOUDS[0], cluster_P, **families, **few)
    found = measure(CLOUDS[0], cluster_P, search_among=64, **families, **few)
    vectors = array_checks.read_vectors(CLOUDS[0], cluster_P)
    rows_P = folds.cut_chunks(vectors, 1, 8, 0, 64)[0].sample.rows_P
    own = measure(CLOUDS[0][rows_P], cluster_P[rows_P], families="dimension", **few)
    assert 64 <= len(rows_P) < POINTS
    assert found.attrs["neighbors_among"] == f"{len(rows_P)} of {POINTS} points"
    assert "neighbors_among" not in whole.attrs
    np.testing.assert_array_equal(found.mean_cosine, whole.mean_cosine)
    np.testing.assert_array_equal(found.twonn[0], own.twonn[0])
    assert np.isfinite(found.twonn).sum() == 3  # and no deviation of one batch
    with pytest.raises(ValueError, match="search_among is 8; pass a whole number from 64, or None"):
        measure(CLOUDS[0], search_among=8, **few)
