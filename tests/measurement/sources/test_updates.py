"""What the next update adds to the matrices, in the tables of a run: measured, kept, and added to tables of old."""

import numpy as np
import pytest

from anisoscope.analysis.shapes import shapes
from anisoscope.measurement.sources import updates as sources_updates
from anisoscope.measurement.tables import files, updates
from anisoscope.measurement.tables.updates import QUANTITIES
from anisoscope.training import loop
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import tiny
from tests.measurement.sources.swept import measured
from tests.plot.tables import make_run
from tests.training.test_loop import store_of


def test_the_spectrum_is_that_of_each_matrix_of_each_block():
    orthogonal = np.stack([np.linalg.qr(np.random.default_rng(seed).normal(size=(8, 4)))[0] for seed in (0, 1)])
    one = np.ones((2, 8, 4))
    changes = {"qkv": orthogonal, "attention_out": one, "mlp_up": 1e-6 * orthogonal, "mlp_down": -one}
    found = sources_updates.spectra({name: {"kernel": value.astype(np.float32)} for name, value in changes.items()})
    for values in found.values():
        np.testing.assert_allclose(values, [[4, 1, 4, 1]] * 2, rtol=1e-3)


@pytest.mark.slow
def test_the_update_of_a_checkpoint_is_that_to_the_next_step_and_joins_the_others(tmp_path, capsys):
    config = replace(tiny.config(optimizer="muon", learning_rate=0.02), {"measure.families": ("similarity",)})
    with_updates, corpus = replace(config, {"measure.updates": True}), tiny.corpus()
    with Stop() as stop:
        loop.train(config, corpus, {"run": tmp_path / "run"}, "run", stop)
    measured(config, tmp_path / "run")
    assert not {*QUANTITIES} & {*files.read_table(tmp_path / "run" / "results.nc")}
    measured(with_updates, tmp_path / "run")  # a table that is there gets them
    results = files.read_table(tmp_path / "run" / "results.nc")
    assert results.update_effective_rank.dims == ("step", "block", "kernel")
    assert "6 checkpoints measured (6 now)" in capsys.readouterr().out
    store = store_of(tmp_path / "run", config)
    for before, after in ((1, 2), (4, 5)):
        change = [store.restore_params(at)["blocks"] for at in (before, after)]
        for matrix, kernel in (("attention", "qkv"), ("attention_out", "attention_out"), ("mlp_out", "mlp_down")):
            first, last = (one[kernel]["kernel"] for one in change)
            for block in (0, 1):
                sigma = np.linalg.svd(np.asarray(last[block] - first[block], np.float64), compute_uv=False)
                own = results.sel(step=before, block=block + 1, kernel=matrix)
                np.testing.assert_allclose(own.update_stable_rank, (sigma**2).sum() / sigma[0] ** 2, rtol=1e-3)
    assert np.isfinite(shapes(results).last_update_rank).all()


def test_a_table_without_them_is_nan_beside_others():

    plain = make_run(steps=(0,), layers=2, heads=1, batches=2).results.isel(step=0)
    ranks = updates.labelled(["attention", "mlp"], {name: np.ones((2, 2)) for name in QUANTITIES})
    found = updates.over_training({0: plain, 5: ranks})
    assert list(found.step) == [0, 5]
    np.testing.assert_array_equal(found.update_stable_rank.mean(("block", "kernel")), [np.nan, 1])
    assert not updates.over_training({0: plain})
