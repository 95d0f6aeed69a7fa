"""Tables of further clouds of every block, beside those of the residual stream."""

import jax
import numpy as np
import pytest

from anisoscope.models import transformer
from anisoscope.results import joined_files
from anisoscope.sources import run_program
from anisoscope.utils.settings import replace
from tests import reference, tiny
from tests.sources.swept import measured, traces
from tests.training.test_loop import store_of

HOOK_POINTS = ("mlp_out", "values")
CHANGES = {
    "measure.families": ("similarity", "attention"),
    "measure.nulls": ("untrained",),
    "measure.hook_points": HOOK_POINTS,
}


def test_the_tables_of_a_hook_point_are_those_of_its_cloud(run, monkeypatch):
    folder, config = run[0], replace(run[1], CHANGES)
    count = traces(monkeypatch)
    measured(config, folder)
    assert len(count) == 2  # of the residual stream, and of all hook points
    corpus, params = tiny.corpus(), store_of(folder).restore_params(2)
    probe = run_program.draw_probe(config, corpus)
    model = transformer.build(config.model, corpus.vocab_size, "float32", HOOK_POINTS)
    found = jax.jit(model.apply)(params, probe.tokens_GWT[0])[1].hooked_NBTD
    for hook_point in HOOK_POINTS:
        table, batches = (
            joined_files.read_table(folder / "hook_points" / hook_point / f"{name}.nc")
            for name in ("results", "batches")
        )
        assert table.layer.values.tolist() == [1, 2]
        assert table.depth.values.tolist() == [0.5, 1]
        assert "query_drift" not in table  # no cloud
        for s, layer in np.ndindex(2, 2):
            cloud = np.asarray(found[hook_point][layer]).reshape(-1, 16)[probe.picks_SGP[s, 0]]
            value = batches.mean_norm.sel(step=2, batch=0, layer=layer + 1)[s]
            assert value.item() == pytest.approx(reference.mean_norm(cloud), rel=1e-4)
        means = table.mean_norm.sel(statistic="mean")
        average = table.mean_norm_over_blocks.sel(statistic="mean")
        np.testing.assert_allclose(average, means.mean("layer"), rtol=1e-6)
        excess = table.mean_norm_excess.sel(null="untrained", statistic="mean")
        own = means.sel(step=2) - means.sel(step=0)
        np.testing.assert_allclose(excess.sel(step=2), own, atol=1e-6)
