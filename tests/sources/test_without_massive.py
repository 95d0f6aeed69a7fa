"""The set of positions without massive vectors, against float64 twins and sets that are known."""

import numpy as np
import pytest

from anisoscope import measure, to_text
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.metrics.leading import MASSIVE_RATIO, is_massive
from anisoscope.metrics.quantity import MEASURED
from anisoscope.results import joined_files
from anisoscope.sources import activations
from anisoscope.sources.massive_tokens import find_massive_tokens
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import reference_comparison, reference_spectrum
from tests.sources.activated import CONTEXT, FOLDS, POINTS, PROBE, activations_of, visible
from tests.sources.swept import measured

TEXTS, LENGTH, WIDTH = 8, 12, 4
FAMILIES = ("spectrum", "comparison")
STATES = np.random.default_rng(0).normal(size=(3, TEXTS, LENGTH, WIDTH)) + 1
PLANTED = {
    (1, 0, 1): 1e3,
    (1, 3, 1): 1e3,
    (2, 3, 1): 1e3,
    (2, 5, 7): 50.0,
}  # (layer, text, token): factor
KEEP = np.ones((TEXTS, LENGTH), bool)
KEEP[[0, 3, 5], [1, 1, 7]] = False


def planted(x_LBTD, places=PLANTED):
    x_LBTD = np.array(x_LBTD)
    for place, factor in places.items():
        x_LBTD[place] *= factor
    return x_LBTD


def sets_of(table, *names):
    return (table.sel(positions=name, drop=True) for name in names)


def test_a_norm_is_massive_above_ten_times_the_lower_median():
    norms = np.float32([1, 2, 2, 3, 20, 20.001, 0])
    assert MASSIVE_RATIO == 10
    np.testing.assert_array_equal(is_massive(norms), [False] * 5 + [True, False])
    np.testing.assert_array_equal(is_massive(norms[:2] * [1, 11]), [False, True])


@pytest.mark.parametrize("joined", [True, False])
def test_tokens_that_are_massive_in_any_layer_leave_all_layers(joined):
    """Texts, or points with labels: values and intervals are those of the tokens that are left."""
    x, options = planted(STATES), {"families": FAMILIES, "nulls": (), "folds": 4}
    lens = {"unembedding": (None, np.eye(WIDTH)), "targets": np.arange(96).reshape(8, 12) % 4}
    options |= lens
    text_BT = np.repeat(np.arange(TEXTS), LENGTH).reshape(TEXTS, LENGTH)
    if joined:
        table = measure(x, without_massive=True, **options)
    else:
        points = {"clusters": text_BT.ravel(), "targets": options["targets"].ravel()}
        layers = [*x.reshape(3, -1, WIDTH)]
        table = measure(layers, without_massive=True, **options | points)
    sets = ["all", *["without_first_token"] * joined, "without_massive"]
    assert table.positions.values.tolist() == sets
    assert table.attrs["points_of"].endswith("without_massive 93")
    assert table.massive_vectors.values.tolist() == [0, 2, 2]
    assert table.massive_tokens.item() == 3
    left = table.sel(positions="without_massive", statistic="mean")
    for layer in range(3):
        cloud = x[layer][KEEP]
        expected = reference_spectrum.anisotropy(cloud)
        np.testing.assert_allclose(left.anisotropy[layer], expected, rtol=1e-4)
        for other in range(3):
            expected = reference_comparison.linear_cka(cloud, x[other][KEEP])
            np.testing.assert_allclose(left.cka_layers[layer, other], expected, rtol=1e-4)
    assert (table.anisotropy.sel(positions="all", statistic="mean")[1:] > 0.9).all()
    labels = {"clusters": text_BT[KEEP], "targets": options["targets"][KEEP]}
    alone = measure([*x[:, KEEP]], **options | labels)
    (found,) = sets_of(table, "without_massive")
    for name in alone.data_vars:
        np.testing.assert_array_equal(found[name], alone[name], err_msg=name)
    assert "massive" not in to_text(table.sel(positions="all"))


def test_without_a_massive_vector_it_is_the_set_of_all_to_the_bit():
    x, options = STATES[0].reshape(-1, WIDTH), {"families": "spectrum", "nulls": "gaussian"}
    table, plain = measure(x, without_massive=True, **options), measure(x, **options)
    assert (table.massive_vectors.item(), table.massive_tokens.item()) == (0, 0)
    for name in plain.data_vars:
        for found in sets_of(table, "all", "without_massive"):
            np.testing.assert_array_equal(found[name], plain[name], err_msg=name)


def test_too_few_points_that_are_massive_in_no_layer_are_refused():
    x = np.ones((12, 12, 3)) * np.where(np.eye(12), 100, 1)[..., None]
    with pytest.raises(ValueError, match="vectors have 0 points that are massive in no layer"):
        measure([*x], without_massive=True, families="similarity", nulls=())


SETTINGS = MeasureConfig(
    points=POINTS,
    batches=1,
    folds=FOLDS,
    families=("spectrum", "comparison", "attention"),
    nulls=("shuffled", "permuted"),
)


def measure_windows(change, settings=SETTINGS):
    """Measure a batch of a tiny model's windows, whose residual stream is changed, in three sets."""
    inputs = [activations_of(tokens_GWT[0]) for tokens_GWT in PROBE[:2]]
    resid, q, k = (np.stack(x) for x in zip(*(x[:3] for x in inputs), strict=True))
    resid = change(resid)
    visible_TT = np.asarray(visible())
    inner_TT = visible_TT.copy()
    inner_TT[0] = inner_TT[:, 0] = False
    massive = find_massive_tokens(resid, PROBE.order_GJM[0])
    read = activations.BatchActivations(resid, q, k)
    sets = PROBE.picks_SGP[:, 0], np.stack([visible_TT, inner_TT])
    return resid, activations.measure_batch(0, read, {}, *sets, settings, massive)


def assert_same_sets(values, first, second):
    for cloud, by_name in values.items():
        for name, value in by_name.items():
            np.testing.assert_array_equal(value[:, first], value[:, second], err_msg=(cloud, name))


def test_picks_are_those_of_all_positions_or_without_the_first_token_where_these_are_massive():
    """To the bit, of every input, null model and head."""
    assert_same_sets(measure_windows(lambda x: x)[1], 0, 2)

    def lengthen_first(x_ZLBTD):
        x_ZLBTD[:, 1, :, 0] *= 1e3
        return x_ZLBTD

    values = measure_windows(lengthen_first)[1]
    assert_same_sets(values, 1, 2)
    assert (values[MEASURED]["anisotropy"][0, 0, 1] > 0.9).all()


def test_massive_tokens_of_a_few_windows_are_replaced_in_every_input_and_null_model():
    def lengthen_some(x_ZLBTD):
        x_ZLBTD[0, 1, ::3, 1] *= 1e3
        x_ZLBTD[1, 2, ::2, 4] *= 1e3
        return x_ZLBTD

    resid, values = measure_windows(lengthen_some)
    windows, share = resid.shape[2], POINTS // FOLDS
    massive_ZBT = np.zeros((2, windows, CONTEXT), bool)
    massive_ZBT[0, ::3, 1] = massive_ZBT[1, ::2, 4] = True
    clouds = []
    for z, name in enumerate((MEASURED, "shuffled")):
        massive_P = massive_ZBT[z].ravel()
        picks_P = np.concatenate([x[~massive_P[x]][:share] for x in PROBE.order_GJM[0]])
        clouds.append(resid[z].reshape(3, -1, resid.shape[-1])[:, picks_P])
        found = values[name]["anisotropy"][0, 2, :, 0]
        expected = [reference_spectrum.anisotropy(cloud) for cloud in clouds[z]]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        if z == 0:
            own_P = picks_P
    cka = values[MEASURED]["cka_layers"][0, 2, 0, 1, 0]
    assert cka == pytest.approx(reference_comparison.linear_cka(*clouds[0][:2]), rel=1e-4)
    # the permuted windows: the next in the circle whose token is not massive
    key = activations.batch_keys(0, 1)[0]
    following_W = np.asarray(
        activations._permuted(np.arange(windows) * CONTEXT, windows, CONTEXT, key)
    )
    following_W = following_W // CONTEXT
    massive_P, others = massive_ZBT[0].ravel(), []
    for window, time in zip(*np.divmod(own_P, CONTEXT), strict=True):
        window = following_W[window]
        while massive_ZBT[0, window, time]:
            window = following_W[window]
        others.append(window * CONTEXT + time)
    flat = resid[0].reshape(3, -1, resid.shape[-1])
    expected = reference_comparison.linear_cka(flat[0, others], flat[1, own_P])
    found = values["permuted"]["cka_layers"][0, 2, 0, 1, 0]
    assert found == pytest.approx(expected, rel=1e-3)


def test_folds_with_too_few_tokens_left_are_refused():
    def lengthen_two_windows(x_ZLBTD):
        x_ZLBTD[0, 1, :2] *= 1e3
        return x_ZLBTD

    with pytest.raises(UserError, match=r"a fold has 12 tokens .* needs 24; lower measure\.points"):
        measure_windows(lengthen_two_windows)


def test_a_run_has_the_set_on_request_and_the_others_as_without(run):
    folder, config = run[0], replace(run[1], {"measure.families": ("similarity",)})
    tables = []
    for without_massive in (False, True):
        measured(replace(config, {"measure.without_massive": without_massive}), folder)
        tables.append(joined_files.read_table(folder / "results.nc"))
        if not without_massive:
            with pytest.raises(UserError, match="was measured on other clouds: positions="):
                measured(replace(config, {"measure.without_massive": True}), folder)
        (folder / "measurements").rename(folder / f"measurements {without_massive}")
    plain, table = tables
    sets = ["all", "without_first_token", "without_massive"]
    assert table.positions.values.tolist() == sets
    assert table.massive_vectors.dims == ("step", "layer")
    assert not table.massive_vectors.any()
    assert not table.massive_tokens.any()
    assert "massive_vectors" not in plain
    own, left = sets_of(table, "all", "without_massive")
    for name in (name for name in plain.data_vars if "positions" in plain[name].dims):
        np.testing.assert_array_equal(table[name].sel(positions=sets[:2]), plain[name])
        np.testing.assert_array_equal(left[name], own[name])
