"""The table of single points of a run."""

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from anisoscope.data import frequency
from anisoscope.measurement.sources import points
from anisoscope.measurement.sources.program import probe_of
from anisoscope.measurement.tables import files
from anisoscope.models import transformer
from anisoscope.training import loop
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import reference_scale, reference_trajectory, tiny
from tests.measurement.sources.swept import measured
from tests.reference import originals, sorted_distances
from tests.training.test_loop import store_of

COUNT = 160
CHANGES = {"measure.points": COUNT, "measure.batches": 1, "measure.points_table": True}
CHANGES |= {"measure.families": ("similarity",), "measure.nulls": ()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, text = tmp_path_factory.mktemp("run"), tiny.corpus(4000)
    config = replace(tiny.config(steps=1), CHANGES)
    with Stop() as stop:
        loop.train(config, text, {"run": folder}, "run", stop)
    measured(config, folder, text)
    return folder, config, text


@pytest.mark.slow
def test_a_point_is_what_stands_at_its_place_and_lies_where_its_vector_lies(run):
    folder, config, text = run
    table, probe = files.read_table(folder / "points" / "1.nc"), probe_of(config, text)
    tokens_WT = probe.tokens_GWT[0]
    np.testing.assert_array_equal(table.window * 8 + table.position, probe.picks_SGP[0, 0])
    np.testing.assert_array_equal(table.token_id, tokens_WT[table.window, table.position])
    assert table.token.values[0] == chr(text.vocabulary[int(table.token_id[0])])
    share = np.bincount(text.train, minlength=7) / len(text.train)
    np.testing.assert_allclose(table.frequency.sel(ngram=1), share[table.token_id], rtol=1e-5)
    pairs = np.exp(frequency.log_frequency(text.train, 2, text.vocab_size))
    first = int(np.flatnonzero(table.position)[0])
    window, place = table.window[first].item(), table.position[first].item()
    pair = tokens_WT[window, place - 1] * text.vocab_size + tokens_WT[window, place]
    assert table.frequency.sel(ngram=2, point=first).item() == pytest.approx(pairs[pair], rel=1e-5)
    assert np.isnan(table.frequency.sel(ngram=3)).values.tolist() == (table.position < 2).values.tolist()

    params = store_of(folder, config).restore_params(1)
    model = transformer.build(config.model, text.vocab_size, "float32")
    logits_WTV, activations = jax.jit(model.apply)(params, tokens_WT)
    resid_NWTD = np.asarray(activations.resid_LBTD)
    inside = np.flatnonzero((table.position > 0) & (table.position < 7))
    step_NWTD = np.diff(resid_NWTD.astype(np.float64), axis=2)
    places = zip(table.window.values[inside], table.position.values[inside], strict=True)
    angle_NQ = [[reference_trajectory.angle(x[w, t - 1], x[w, t]) for w, t in [*places]] for x in step_NWTD[:1]]
    np.testing.assert_allclose(table.turning_angle[:1, inside], angle_NQ, rtol=1e-3)
    assert np.isnan(table.turning_angle[:, ~np.isin(np.arange(COUNT), inside)]).all()
    log_p_WTV = log_softmax(np.asarray(logits_WTV, np.float64), axis=-1)[table.window, table.position] / np.log(2)
    np.testing.assert_allclose(table.entropy, -(2**log_p_WTV * log_p_WTV).sum(-1), rtol=1e-4)
    for point in range(COUNT):
        window, place = table.window[point].item(), table.position[point].item()
        own = -log_p_WTV[point, tokens_WT[window, place + 1]] if place < 7 else np.nan
        np.testing.assert_allclose(table.loss[point], own, rtol=1e-4)
    for layer, cloud in enumerate(resid_NWTD.reshape(3, -1, 16)[:, probe.picks_SGP[0, 0]]):
        of_layer = table.sel(layer=layer)
        np.testing.assert_allclose(of_layer.norm, np.linalg.norm(cloud, axis=1), rtol=1e-4)
    first = np.unique(originals(cloud))  # of the last layer, without copies
    near = sorted_distances(cloud[first].astype(np.float64))[:, :-1]
    assert 100 < near.shape[1] < 128
    for count in (20, 64):
        local = reference_scale.local_dimensions(near, count)
        got = of_layer.local_dimension.sel(neighbours=count)[first]
        np.testing.assert_allclose(got, local, rtol=2e-3)
    assert np.isnan(of_layer.local_dimension.sel(neighbours=128)).all()


@pytest.mark.slow
def test_what_is_there_is_not_made_again_and_other_points_are_refused(run):
    folder, config, text = run
    before = {path: path.stat().st_mtime_ns for path in (folder / "points").glob("*.nc")}
    assert len(before) == 2
    measured(config, folder, text)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    with pytest.raises(UserError, match=r"measure\.seed=0 there, 1 now"):
        measured(replace(config, {"measure.seed": 1}), folder, text)


def test_where_copies_leave_too_few_neighbours_there_is_no_dimension():
    """60 distinct points, each ten times: 59 neighbours."""
    cloud = np.tile(np.random.default_rng(0).normal(size=(60, 3)), (10, 1)).astype(np.float32)
    local_CP = np.asarray(points.of_clouds(cloud[None])["local_dimension"][0])
    assert np.isfinite(local_CP[0]).all()
    assert np.isnan(local_CP[1:]).all()
