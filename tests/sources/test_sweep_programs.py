import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.results import joined_files
from anisoscope.sources import run_program
from anisoscope.utils import mesh
from anisoscope.utils.settings import replace
from tests import reference, tiny
from tests.sources.swept import count_forward, measured
from tests.training.test_loop import store_of


@pytest.mark.slow
def test_another_mask_is_data_of_the_same_program(run):
    """One run's parameters under three masks: each cloud is that of the model with this mask."""
    folder, changes = run[0], {"measure.families": ("similarity", "attention"), "measure.nulls": ()}
    config = replace(run[1], changes)
    count, corpus = count_forward(), tiny.corpus()
    params = store_of(folder).restore_params(6)
    probe = run_program.draw_probe(config, corpus)
    for mask in ({}, {"model.mask": "bidirectional"}, {"model.mask": "window", "model.window": 2}):
        masked = replace(config, mask)
        values = run_program.make_measure_program(masked, corpus).measure(params, {})[0]["measured"]
        model = transformer.build(masked.model, corpus.vocab_size, "float32")
        _, found = jax.jit(model.apply)(params, probe.tokens_GWT[0])
        for s, picks_P in enumerate(probe.picks_SGP[:, 0]):
            cloud_PD = np.asarray(found.resid_LBTD[2]).reshape(-1, 16)[picks_P]
            assert values["mean_cosine"][0, s, 2, 0] == pytest.approx(
                reference.mean_cosine(cloud_PD), abs=1e-5
            )
        # of queries that see several keys
        most = np.log(np.asarray(visible_keys(masked.model, 8)).sum(1)[1:]).mean()
        # little was learned
        np.testing.assert_allclose(values["attention_entropy"][0, 0, 1], most, atol=0.02)
    assert count() == 1


@pytest.mark.slow
def test_devices_and_cores_measure_what_one_does_to_the_bit(run, monkeypatch):
    families = ("spectrum", "attention", "comparison")
    folder, config = run[0], replace(run[1], {"measure.families": families, "measure.batches": 2})
    tables = []
    for devices, cores in ((8, 4), (1, 1)):
        monkeypatch.setattr(mesh, "devices", lambda count=devices: jax.devices()[:count])
        monkeypatch.setattr(mesh, "cores", lambda count=cores: count)
        measured(config, folder)
        tables.append(joined_files.read_table(folder / "results.nc"))
        (folder / "measurements").rename(folder / f"of {devices}")
    for name in tables[0].data_vars:
        np.testing.assert_array_equal(*(table[name] for table in tables), err_msg=name)


def test_of_an_encoder_the_readout_tells_what_was_masked():
    changes = {"objective": "masked", "model.mask": "bidirectional", "measure.masked": True}
    few = {"measure.points": 56, "measure.batches": 1, "measure.folds": 2, "measure.nulls": ()}
    changes |= few | {"measure.families": ("logit_lens",)}
    config, corpus = replace(tiny.config(), changes), tiny.corpus()
    network = transformer.build(config.model, corpus.vocab_size, "float32")
    params, probe = network.init(jax.random.key(0)), run_program.draw_probe(config, corpus)
    values = run_program.make_measure_program(config, corpus).measure(params, {})[0]["measured"]
    loss = values["logit_lens_loss"][0, 0, -1, 0]
    unmasked = replace(config, {"measure.masked": False})
    text_WT = run_program.draw_probe(unmasked, corpus).tokens_GWT[0]
    logits_WTV = np.asarray(network.apply(params, jnp.asarray(probe.tokens_GWT[0]))[0], np.float64)
    log_p_WTV = logits_WTV - np.log(np.exp(logits_WTV).sum(-1, keepdims=True))
    own_WT = -np.take_along_axis(log_p_WTV, text_WT[..., None], -1)[..., 0] / np.log(2)
    picks_P = probe.picks_SGP[0, 0]
    asked_P = probe.target_GZWT[0, 0].ravel()[picks_P] >= 0
    assert 0 < asked_P.sum() < len(asked_P)
    np.testing.assert_allclose(loss, own_WT.ravel()[picks_P][asked_P].mean(), rtol=1e-5)


HOOK_POINTS = ("mlp_out", "values")
CHANGES = {
    "measure.families": ("similarity", "attention"),
    "measure.nulls": ("untrained",),
    "measure.hook_points": HOOK_POINTS,
}


def test_the_tables_of_a_hook_point_are_those_of_its_cloud(run):
    folder, config = run[0], replace(run[1], CHANGES)
    count = count_forward()
    measured(config, folder)
    assert count() == 2  # of the residual stream, and of all hook points
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
