import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope.config.measure_config import NULLS
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.quantity import Family, Quantity
from anisoscope.measurement.resampling import over_folds
from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.results import joined_files
from anisoscope.sources import activations, run_program
from anisoscope.utils import mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import reference, tiny
from tests.sources.swept import VALUE, measured, traces
from tests.training.test_loop import store_of

SLOW = pytest.mark.slow


@pytest.mark.slow
def test_another_mask_is_data_of_the_same_program(run, tmp_path, monkeypatch):
    """One run's parameters, measured under three masks: each cloud is that of the model with this
    mask.
    """
    folder, config = (
        run[0],
        replace(run[1], {"measure.families": ("similarity", "attention"), "measure.nulls": ()}),
    )
    count, corpus = traces(monkeypatch), tiny.corpus()
    params = store_of(folder, config).restore_params(6)
    probe = run_program.draw_probe(config, corpus)
    for mask in ({}, {"model.mask": "bidirectional"}, {"model.mask": "window", "model.window": 2}):
        masked = replace(config, mask)
        checkpoint = run_program.Reference(params, None)
        values = run_program.make_program(masked, corpus).measure(checkpoint, {}).values["measured"]
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
    assert len(count) == 1


@SLOW  # quick: test_another_mask_is_data_of_the_same_program, tests/measurement/test_own_source.py
def test_all_checkpoints_in_one_program_and_then_nothing_to_do(run, monkeypatch, capsys):
    folder, config = run
    count = traces(monkeypatch)
    measured(config, folder)
    assert len(count) == 1
    table = joined_files.read_table(folder / "results.nc")
    assert list(table.step.values) == [0, 1, 2, 4, 5, 6]
    sizes = {"step": 6, "positions": 2, "layer": 3, "block": 2, "head": 2, "without": 2}
    assert table.sizes == sizes | {"null": 2, "statistic": 4}
    batches = joined_files.read_table(folder / "batches.nc")
    assert batches.sizes == sizes | {"batch": 2}
    assert np.isfinite(batches.anisotropy).all()
    np.testing.assert_allclose(
        batches.anisotropy.mean("batch"), table.anisotropy.sel(VALUE), rtol=1e-6
    )
    assert not np.array_equal(table.anisotropy.sel(step=0), table.anisotropy.sel(step=6))
    assert table.attrs["corpus"] == "letters"
    frame = pd.read_csv(folder / "results.csv")
    assert set(frame.step) == {0, 1, 2, 4, 5, 6}

    before = {p: p.read_bytes() for p in folder.rglob("*.nc")}
    measured(config, folder)
    assert len(count) == 1
    assert "(0 now)" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in folder.rglob("*.nc")} == before


@pytest.mark.parametrize(
    ("devices", "batches", "shared"),
    [
        pytest.param(4, 2, (2, 2), marks=SLOW),
        pytest.param(8, 2, None, marks=SLOW),
    ],
)  # which get a set of positions each, a batch, both, and windows of every batch
def test_many_devices_measure_what_one_does(run, monkeypatch, devices, batches, shared):
    # two compile it in the sweep
    families = ("spectrum", "attention", "projection") + ("comparison",) * (devices > 2)
    folder, config = (
        run[0],
        replace(run[1], {"measure.families": families, "measure.batches": batches}),
    )
    monkeypatch.setattr(mesh, "devices", lambda: jax.devices()[:devices])
    found = mesh.measuring_mesh(config.measure.batches, 2)
    assert (None if found is None else found.devices.shape) == shared
    measured(config, folder)
    many = joined_files.read_table(folder / "results.nc")
    (folder / "measurements").rename(folder / "of many")
    monkeypatch.setattr(mesh, "devices", lambda: jax.devices()[:1])
    measured(config, folder)
    alone = joined_files.read_table(folder / "results.nc")
    for name in many.data_vars:
        np.testing.assert_allclose(many[name], alone[name], rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_weighted_tables_say_how_even_they_are_and_are_not_joined_with_others(run):
    folder, config = run
    few = {
        "measure.points": 14,
        "measure.batches": 1,
        "measure.folds": 1,
        "measure.families": ("frequency",),
    }
    weighted = replace(
        config, few | {"measure.weighting": "types", "measure.nulls": ("gaussian", "shuffled")}
    )
    measured(weighted, folder)
    results = joined_files.read_table(folder / "results.nc")
    assert results.attrs["weighting"].startswith("at the points 7 characters weigh as ")
    norms = results.norm_by_frequency.sel(step=6, statistic="mean", positions="all")
    assert np.isfinite(norms).any("frequency").all()
    assert np.isnan(results.frequency_correlation).all()  # of 14 points no character has 20
    with pytest.raises(UserError, match=r"measure\.weighting='types' there, 'none' now"):
        measured(replace(weighted, {"measure.weighting": "none"}), folder)


@pytest.mark.slow
def test_every_product_of_a_measurement_has_full_float32_precision():
    """On an accelerator a product without it rounds its factors to TF32 or bfloat16; a CPU cannot
    show that.
    """
    config, corpus = tiny.config(), tiny.corpus()
    model = transformer.build(config.model, corpus.vocab_size, "float32")
    params, probe = model.init(jax.random.key(0)), run_program.draw_probe(config, corpus)
    visible_TT = visible_keys(config.model, config.model.context)
    settings = dataclasses.replace(config.measure, families=tuple(FAMILIES), nulls=NULLS)
    read = functools.partial(transformer.unembedding, config.model)
    spec = activations.Spec(activations.make_activate(model.apply, settings, read), settings)
    compute = functools.partial(activations.measure_batches, spec)
    batches = activations.probe_batches(
        probe, activations.batch_keys(settings.seed, settings.batches), visible_TT
    )
    text = str(jax.make_jaxpr(compute)(params, {"previous": params, "last": params}, batches))
    products = text.count("dot_general[")
    assert products > 7
    assert (
        text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)")
        + text.count("precision=HIGHEST")
        == products
    )


@pytest.mark.slow
def test_a_run_has_the_readout_where_it_is_named_beside_the_untrained_model(run):
    folder, config = run
    measured(
        replace(config, {"measure.families": ("logit_lens",), "measure.nulls": ("untrained",)}),
        folder,
    )
    results = joined_files.read_table(folder / "results.nc").sel(step=6, positions="all")
    loss = results.logit_lens_loss.sel(statistic="mean")
    assert (loss > 0).all()
    assert float(results.logit_lens_divergence.sel(statistic="mean")[-1]) < 1e-5
    assert float(results.logit_lens_settled.sel(statistic="mean")[-1]) == 1
    assert np.isfinite(results.logit_lens_loss_excess.sel(null="untrained", statistic="low")).all()
    assert results.logit_lens_settled_over_blocks.attrs["long_name"].endswith(
        "mean over blocks 1 to N"
    )


@pytest.mark.parametrize("masked", [True, pytest.param(False, marks=SLOW)])
def test_of_an_encoder_the_readout_tells_what_was_masked_or_where_nothing_is_all(masked):
    changes = {"objective": "masked", "model.mask": "bidirectional", "measure.masked": masked}
    few = {"measure.points": 56, "measure.batches": 1, "measure.folds": 2, "measure.nulls": ()}
    config, corpus = (
        replace(tiny.config(), changes | few | {"measure.families": ("logit_lens",)}),
        tiny.corpus(),
    )
    network = transformer.build(config.model, corpus.vocab_size, "float32")
    params, probe = network.init(jax.random.key(0)), run_program.draw_probe(config, corpus)
    checkpoint = run_program.Reference(params, None)
    values = run_program.make_program(config, corpus).measure(checkpoint, {}).values["measured"]
    loss = values["logit_lens_loss"][0, 0, -1, 0]
    text_WT = run_program.draw_probe(replace(config, {"measure.masked": False}), corpus).tokens_GWT[
        0
    ]
    logits_WTV = np.asarray(network.apply(params, jnp.asarray(probe.tokens_GWT[0]))[0], np.float64)
    log_p_WTV = logits_WTV - np.log(np.exp(logits_WTV).sum(-1, keepdims=True))
    own_WT = -np.take_along_axis(log_p_WTV, text_WT[..., None], -1)[..., 0] / np.log(2)
    picks_P = probe.picks_SGP[0, 0]
    asked_P = probe.target_GZWT[0, 0].ravel()[picks_P] >= 0
    assert asked_P.sum() > 0
    assert (asked_P.sum() == len(asked_P)) == (not masked)
    np.testing.assert_allclose(loss, own_WT.ravel()[picks_P][asked_P].mean(), rtol=1e-5)


def spread(cloud):
    """Mean squared distance from the center, on all folds and without each."""

    def read(keep_P):
        mean_D = keep_P @ cloud.points_PD / keep_P.sum()
        return {
            "spread": keep_P @ jnp.square(cloud.points_PD - mean_D[None]).sum(axis=1) / keep_P.sum()
        }

    return over_folds(read, cloud.folds, len(cloud.points_PD))


@pytest.mark.slow
def test_a_family_from_outside_is_in_the_results_beside_what_was_measured_before(run, monkeypatch):
    folder, config = run
    of_cloud = ("gaussian", "shuffled", "untrained")
    before = replace(config, {"measure.families": ("spectrum",), "measure.nulls": ("shuffled",)})
    measured(before, folder)
    old = {
        step: joined_files.read_table(folder / "measurements" / f"{step}.nc").anisotropy
        for step in (0, 6)
    }
    words = {
        "long_name": "spread",
        "units": "activation^2",
        "formula": "E |x - E x|^2",
        "source": "a test",
    }
    quantity = Quantity(**words, resampling="jackknife")
    family = Family(
        input_kind="cloud", compute=spread, quantities={"spread": quantity}, nulls=of_cloud
    )
    monkeypatch.setitem(FAMILIES, "toy", family)
    measured(
        replace(config, {"measure.families": ("spectrum", "toy"), "measure.nulls": of_cloud}),
        folder,
    )

    table, excess = (
        joined_files.read_table(folder / "results.nc")[name] for name in ("spread", "spread_excess")
    )
    assert table.attrs["formula"] == "E |x - E x|^2"
    value = table.sel(step=6)
    assert (value.sel(statistic="low") < value.sel(statistic="mean")).all()
    assert (value.sel(statistic="mean") < value.sel(statistic="high")).all()
    assert excess["null"].values.tolist() == list(of_cloud)
    assert np.isfinite(excess).all()
    # of the same spectrum
    assert (np.abs(excess.sel(null="gaussian", statistic="mean")) < 0.1 * value.max()).all()
    assert (excess.sel(null="untrained", statistic="mean", step=6) != 0).all()
    assert "spread" in set(pd.read_csv(folder / "results.csv").metric)
    for step, one in old.items():
        again = joined_files.read_table(folder / "measurements" / f"{step}.nc").anisotropy
        np.testing.assert_array_equal(again.sel(cloud=one.cloud), one)
