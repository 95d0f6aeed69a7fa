"""Tables of further clouds of every block, beside those of the residual stream."""

import jax
import numpy as np
import pytest

from anisoscope.measurement.sources import activations, program, sites, sweep
from anisoscope.measurement.tables import files
from anisoscope.models import transformer
from anisoscope.training import loop
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import reference, tiny
from tests.measurement.sources.test_sweep import store_of

SITES = ("mlp_out", "values")
CHANGES = {"measure.families": ("similarity", "attention"), "measure.nulls": ("untrained",), "measure.sites": SITES}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run whose sites are measured, and how often that was compiled."""
    folder, config, count = tmp_path_factory.mktemp("run"), replace(tiny.config(steps=2), CHANGES), []
    made = activations.make_measure

    def counted(*given):
        count.append(given)
        return made(*given)

    with Stop() as stop, pytest.MonkeyPatch.context() as patch:
        loop.train(config, tiny.corpus(), {"run": folder}, "run", stop)
        program._computation.cache_clear()
        patch.setattr(program, "make_measure", counted)
        sites.measure(config, tiny.corpus(), folder, "run", stop)
    return folder, config, len(count)


def test_the_tables_of_a_site_are_those_of_its_cloud(run):
    folder, config, programs = run
    assert programs == 1
    corpus, params = tiny.corpus(), store_of(folder, config).restore_params(2)
    probe = sweep.probe_of(config, corpus)
    model = transformer.build(config.model, corpus.vocab_size, "float32", SITES)
    found = jax.jit(model.apply)(params, probe.tokens_GWT[0])[1].sites_NBTD
    for site in SITES:
        table, batches = (files.read(folder / "sites" / site / f"{name}.nc") for name in ("results", "batches"))
        assert table.layer.values.tolist() == [1, 2]
        assert table.depth.values.tolist() == [0.5, 1]
        assert "query_drift" not in table  # no cloud
        for s, positions in enumerate(("all", "without_first")):
            for layer in (1, 2):
                cloud = np.asarray(found[site][layer - 1]).reshape(-1, 16)[probe.picks_SGP[s, 0]]
                value = batches.mean_norm.sel(step=2, positions=positions, batch=0, layer=layer).item()
                assert value == pytest.approx(reference.mean_norm(cloud), rel=1e-4)
        means = table.mean_norm.sel(less="nothing", statistic="mean")
        np.testing.assert_allclose(
            table.mean_norm_over_blocks.sel(less="nothing", statistic="mean"), means.mean("layer"), rtol=1e-6
        )
        excess = table.mean_norm.sel(less="untrained", statistic="mean")
        np.testing.assert_allclose(excess.sel(step=2), means.sel(step=2) - means.sel(step=0), atol=1e-6)
        assert table.attrs["site"] == site


@pytest.mark.slow
def test_what_is_measured_is_not_measured_again_and_a_further_site_is_added(run, monkeypatch):
    folder, config, _ = run
    more = replace(config, {"measure.sites": (*SITES, "attention_out")})
    written = {path: path.read_bytes() for path in folder.glob("sites/*/measurements/*.nc")}
    assert len(written) == 3 * len(SITES)
    measured = []
    of_sites = sites.make_program

    def made(*given):
        measure = of_sites(*given)
        return lambda params, others, number: measured.append(number) or measure(params, others, number)

    monkeypatch.setattr(sites, "make_program", made)
    with Stop() as stop:
        sites.measure(config, tiny.corpus(), folder, "run", stop)
        assert measured == []
        sites.measure(more, tiny.corpus(), folder, "run", stop)
    assert measured == [2] * 3
    assert {path: path.read_bytes() for path in written} == written
    assert (folder / "sites" / "attention_out" / "results.csv").exists()


def test_sites_need_a_family_of_clouds_and_a_name_that_is_known():
    from anisoscope.config.measure import check_measure

    for changes, words in (
        ({"measure.families": ("attention",), "measure.sites": ("values",)}, "measure.sites=values is a cloud"),
        ({"measure.sites": ("value",)}, "measure.sites is 'value'"),
    ):
        with pytest.raises(UserError, match=words):
            check_measure(replace(tiny.config(), changes).measure, 2)
