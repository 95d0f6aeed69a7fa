import contextlib
import dataclasses
import functools
import json
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import runs
from anisoscope.config.measure import NULLS
from anisoscope.measurement import sweep
from anisoscope.measurement.families.entries import FAMILIES, quantities
from anisoscope.measurement.nulls import PERMUTED
from anisoscope.measurement.quantity import Family, Quantity
from anisoscope.measurement.resamples import over_folds
from anisoscope.measurement.sources import activations, checkpoints, program, references
from anisoscope.measurement.tables import files, projection
from anisoscope.measurement.tables.averages import averages
from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.training import checkpoint, loop
from anisoscope.utils import mesh
from anisoscope.utils.errors import RunError, Stopped, UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import reference, tiny
from tests.training.test_loop import store_of

SLOW = pytest.mark.slow
VALUE = {"statistic": "mean"}


def measured(config, folder, corpus=None, name="run"):
    with Stop() as stop, checkpoints.opened(config, corpus or tiny.corpus(), folder, name, stop) as source:
        sweep.sweep(source, stop)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run trained to its end, to be copied: [folder, config]."""
    folder, config = tmp_path_factory.mktemp("trained"), tiny.config()
    with Stop() as stop:
        loop.train(config, tiny.corpus(), {"run": folder}, "run", stop)
    return folder, config


@pytest.fixture
def run(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    return folder, trained[1]


@pytest.fixture(scope="module")
def measured_once(trained, tmp_path_factory):
    folder = shutil.copytree(trained[0], tmp_path_factory.mktemp("measured") / "run")
    measured(trained[1], folder)
    return folder


@pytest.fixture
def tables(measured_once, trained, tmp_path):
    """The run with the tables of all its checkpoints: [folder, config]."""
    return shutil.copytree(measured_once, tmp_path / "run"), trained[1]


def traces(monkeypatch):
    """Counts how often the measurement is traced, that is, compiled."""
    count = []

    def counted(*given):
        count.append(1)
        return activations.measure_batches(*given)

    program._computation.cache_clear()
    monkeypatch.setattr(program, "measure_batches", counted)
    return count


@SLOW  # quick: test_another_mask_is_data_of_the_same_program
def test_runs_with_the_same_model_and_settings_share_a_program(run, tmp_path, monkeypatch):
    folder, config = run
    other = shutil.copytree(folder, tmp_path / "other")
    count = traces(monkeypatch)
    measured(config, folder)
    seeds = {
        "train": dataclasses.replace(config.train, seed=5),
        "model": dataclasses.replace(config.model, leak_seed=5),
    }
    changed = dataclasses.replace(config, **seeds)
    measured(changed, other)
    assert len(count) == 1
    np.testing.assert_array_equal(
        files.read_table(folder / "results.nc").twonn, files.read_table(other / "results.nc").twonn
    )


@pytest.mark.slow
def test_a_program_compiled_ahead_is_the_one_that_measures(run, caplog):
    """So the sweep of a new run compiles it no more; else the demo would take half a minute longer."""
    folder, config = run[0], replace(run[1], {"measure.families": ("comparison",)})
    program._computation.cache_clear()
    compiled = "Finished XLA compilation of jit(measured)"
    with jax.log_compiles():
        checkpoints.precompile(config, tiny.corpus())
        assert compiled in caplog.text
        caplog.clear()
        measured(config, folder)
    assert compiled not in caplog.text


@pytest.mark.slow
def test_another_mask_is_data_of_the_same_program(run, tmp_path, monkeypatch):
    """One run's parameters, measured under three masks: each cloud is that of the model with this mask."""
    folder, config = run[0], replace(run[1], {"measure.families": ("similarity", "attention"), "measure.nulls": ()})
    count, corpus = traces(monkeypatch), tiny.corpus()
    params = store_of(folder, config).restore_params(6)
    probe = program.probe_of(config, corpus)
    for mask in ({}, {"model.mask": "bidirectional"}, {"model.mask": "window", "model.window": 2}):
        masked = replace(config, mask)
        measure = program.make_program(masked, corpus)
        values = measure(params, {}).values["measured"]
        model = transformer.build(masked.model, corpus.vocab_size, "float32")
        _, found = jax.jit(model.apply)(params, probe.tokens_GWT[0])
        for s, picks_P in enumerate(probe.picks_SGP[:, 0]):
            cloud_PD = np.asarray(found.resid_LBTD[2]).reshape(-1, 16)[picks_P]
            assert values["mean_cosine"][0, s, 2, 0] == pytest.approx(reference.mean_cosine(cloud_PD), abs=1e-5)
        most = np.log(np.asarray(visible_keys(masked.model, 8)).sum(1)[1:]).mean()  # of queries that see several keys
        np.testing.assert_allclose(values["attention_entropy"][0, 0, 1], most, atol=0.02)  # little was learned
    assert len(count) == 1


@SLOW  # quick: test_another_mask_is_data_of_the_same_program, tests/measurement/test_own_source.py
def test_all_checkpoints_in_one_program_and_then_nothing_to_do(run, monkeypatch, capsys):
    folder, config = run
    count = traces(monkeypatch)
    measured(config, folder)
    assert len(count) == 1
    table = files.read_table(folder / "results.nc")
    assert list(table.step.values) == [0, 1, 2, 4, 5, 6]
    sizes = {"step": 6, "positions": 2, "layer": 3, "block": 2, "head": 2, "without": 2}
    assert table.sizes == sizes | {"null": 2, "statistic": 4}
    batches = files.read_table(folder / "batches.nc")
    assert batches.sizes == sizes | {"batch": 2}
    assert np.isfinite(batches.anisotropy).all()
    np.testing.assert_allclose(batches.anisotropy.mean("batch"), table.anisotropy.sel(VALUE), rtol=1e-6)
    assert not np.array_equal(table.anisotropy.sel(step=0), table.anisotropy.sel(step=6))
    assert table.attrs["corpus"] == "letters"
    frame = pd.read_csv(folder / "results.csv")
    assert set(frame.step) == {0, 1, 2, 4, 5, 6}

    before = {p: p.read_bytes() for p in folder.rglob("*.nc")}
    measured(config, folder)
    assert len(count) == 1
    assert "(0 now)" in capsys.readouterr().out
    assert {p: p.read_bytes() for p in folder.rglob("*.nc")} == before


def test_the_first_table_is_the_untrained_null_model(tables):
    folder, _ = tables
    table = files.read_table(folder / "results.nc")
    for name in ("anisotropy", "twonn", "attention_entropy"):
        value, excess = table[name], table[f"{name}_excess"].sel(null="untrained")
        null = value.sel(statistic="mean", step=6) - excess.sel(statistic="mean", step=6)
        np.testing.assert_allclose(null, value.sel(statistic="mean", step=0), rtol=1e-5)
        np.testing.assert_array_equal(excess.sel(step=0, statistic=["mean", "low", "high"]), 0.0)


def comparing(config):
    return dataclasses.replace(config, measure=dataclasses.replace(config.measure, families=("comparison",), nulls=()))


def test_checkpoints_are_compared_with_the_one_before_and_the_last(run):
    folder, config = run
    measured(comparing(config), folder)
    table = files.read_table(folder / "results.nc")
    for name in ("cka", "overlap"):
        last, previous = (table[f"{name}_{which}"].sel(VALUE) for which in ("last", "previous"))
        np.testing.assert_allclose(last.sel(step=6), 1.0, rtol=1e-5)
        np.testing.assert_allclose(last.sel(step=5), previous.sel(step=6), rtol=1e-6)  # symmetric but for rounding
        assert np.isnan(previous.sel(step=0)).all()
        assert np.isfinite(previous.sel(step=[1, 2, 4, 5, 6])).all()
        assert (last.sel(step=0) < 0.999).any()
    assert (table.overlap_last.sel(VALUE).sel(step=6) == 1).all()


def test_neighbours_found_before_are_those_that_a_search_alone_finds(run, monkeypatch):
    """Of a run that never stops all but the last checkpoint's are found before; of one that goes on, none."""
    folder, config = run
    searched, search = [], references.References._searched
    monkeypatch.setattr(references.References, "_searched", lambda of, step: searched.append(step) or search(of, step))
    measured(comparing(config), folder)
    assert searched == [6]
    whole = {path.name: path.read_bytes() for path in folder.rglob("*.nc")}
    for name in ("0.nc", "2.nc", "6.nc"):
        (folder / "measurements" / name).unlink()
    measured(comparing(config), folder)
    assert searched == [6, 6, 1, 5]
    assert {path.name: path.read_bytes() for path in folder.rglob("*.nc")} == whole


def test_a_comparison_tells_which_checkpoint_was_before(run):
    folder, config = run
    shutil.rmtree(folder / "checkpoints" / "2")
    measured(comparing(config), folder)
    table = files.read_table(folder / "results.nc")
    assert dict(zip(table.step.values.tolist(), table.previous_step.values.tolist(), strict=True)) == {
        **{0: -1, 1: 0, 4: 1, 5: 4, 6: 5}
    }


def projecting(config, head=0):
    settings = dataclasses.replace(config.measure, families=("attention", "projection"), nulls=(), projected_head=head)
    return dataclasses.replace(config, measure=settings)


@pytest.mark.slow
def test_the_projection_is_that_of_the_vectors_of_all_tables(run):
    folder, config = run
    measured(projecting(config), folder)
    table, steps = files.read_table(folder / "results.nc"), [0, 1, 2, 4, 5, 6]
    raw = [files.read_table(folder / "measurements" / f"{step}.nc") for step in steps]
    for block in (1, 2):
        vectors = np.stack([[one[name].sel(block=block) for name in ("query_vectors", "key_vectors")] for one in raw])
        found = projection.common_axes(vectors)
        for index, kind in enumerate(("query", "key")):
            np.testing.assert_allclose(
                table[f"{kind}_projection"].sel(block=block), found.projection[:, index], rtol=1e-6
            )
        np.testing.assert_allclose(table.projection_share.sel(block=block), found.share)
        np.testing.assert_allclose(table.projection_kept.sel(block=block), found.kept)
    assert not np.array_equal(raw[0].query_vectors, raw[-1].query_vectors)
    picks_P = program.probe_of(config, tiny.corpus()).picks_SGP[0, 0]
    np.testing.assert_array_equal(table.window * 8 + table.position_in_window, picks_P)
    own = FAMILIES["attention"].quantities
    assert set(pd.read_csv(folder / "results.csv").metric) == {*own, *(name for one in own for name in averages(one))}


@pytest.mark.slow
def test_the_longest_vectors_stand_in_a_table_by_window_position_and_token(run):
    folder, config = run[0], replace(run[1], {"measure.families": ("leading",), "measure.nulls": ()})
    measured(config, folder)
    frame = pd.read_csv(folder / "leading_vectors.csv")
    assert sorted(set(frame.step)) == [0, 1, 2, 4, 5, 6]
    tokens_WT = program.probe_of(config, tiny.corpus()).tokens_GWT[0]
    params = store_of(folder, config).restore_params(6)
    network = transformer.build(config.model, tiny.corpus().vocab_size, "float32")
    resid_NWTD = np.asarray(jax.jit(network.apply)(params, tokens_WT)[1].resid_LBTD, np.float64)
    norm_NWT = np.linalg.norm(resid_NWTD, axis=-1)
    for layer, rows in frame[frame.step == 6].groupby("layer"):
        places = tuple(rows[["window", "position"]].values.T)
        np.testing.assert_allclose(rows.norm, norm_NWT[layer][places], rtol=1e-4)
        np.testing.assert_allclose(rows.norm, np.sort(norm_NWT[layer].ravel())[::-1][:16], rtol=1e-4)
        assert list(rows.token) == [chr(97 + token) for token in tokens_WT[places]]
        assert (rows.share_of_first_direction.between(0, 1)).all()


def test_vectors_of_another_head_are_refused(run):
    folder, config = run
    measured(projecting(config), folder)
    with pytest.raises(UserError, match=r"measure\.projected_head=0 there, 1 now"):
        measured(projecting(config, head=1), folder)


def test_a_comparison_needs_the_last_checkpoint(run):
    folder, config = run
    shutil.rmtree(folder / "checkpoints" / "6")
    with pytest.raises(UserError, match="needs the checkpoint of the last step, 6"):
        measured(comparing(config), folder)
    measured(config, folder)


def test_stopping_and_going_on_gives_the_same_bytes(run, monkeypatch):
    folder, config = run
    config = projecting(config)
    measured(config, folder)
    whole = {p.name: p.read_bytes() for p in folder.rglob("*.nc")}
    for name in ("2.nc", "6.nc"):
        (folder / "measurements" / name).unlink()
    (folder / "results.nc").unlink()
    write = files.write

    def interrupted(dataset, path):
        write(dataset, path)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write", interrupted)
        with pytest.raises(Stopped, match="stopped before measuring step 6"):
            measured(config, folder)
    assert (folder / "measurements" / "2.nc").exists()
    assert not (folder / "measurements" / "6.nc").exists()
    measured(config, folder)
    assert {p.name: p.read_bytes() for p in folder.rglob("*.nc")} == whole


def test_other_settings_are_refused_and_overwrite_nothing(tables):
    folder, _ = tables
    other = tiny.config()
    other = replace(other, {"measure.points": 24})
    words = r"measure\.points=16 there, 24 now.*move .*measurements away"
    with pytest.raises(UserError, match=words):
        measured(other, folder)
    with pytest.raises(UserError, match=words):
        checkpoints.check_run(other, tiny.corpus(), folder)


@SLOW  # the quick one: tests/measurement/tables/test_raw.py
def test_a_formula_in_other_words_changes_nothing_and_another_version_is_measured_anew(tables, monkeypatch, capsys):
    folder, config = tables
    whole = files.read_table(folder / "results.nc")
    reworded = dataclasses.replace(quantities()["anisotropy"], formula="another")
    monkeypatch.setitem(FAMILIES["spectrum"].quantities, "anisotropy", reworded)
    measured(config, folder)
    assert "(0 now)" in capsys.readouterr().out.splitlines()[-1]
    assert files.read_table(folder / "results.nc").anisotropy.attrs["formula"] == "another"
    changed = dataclasses.replace(reworded, version=2, read=lambda spectrum: 2 * reworded.read(spectrum))
    monkeypatch.setitem(FAMILIES["spectrum"].quantities, "anisotropy", changed)
    program._computation.cache_clear()
    measured(config, folder)
    assert "(6 now)" in capsys.readouterr().out.splitlines()[-1]
    again = files.read_table(folder / "results.nc")
    np.testing.assert_allclose(again.anisotropy.sel(VALUE), 2 * whole.anisotropy.sel(VALUE), rtol=1e-6)
    np.testing.assert_array_equal(again.isoscore, whole.isoscore)
    np.testing.assert_array_equal(again.twonn, whole.twonn)
    program._computation.cache_clear()


@pytest.mark.slow
def test_settings_bind_only_where_something_was_measured(tmp_path, run):
    folder, config = run
    other = tiny.config()
    other = replace(other, {"measure.points": 24})
    with pytest.raises(UserError, match="--stages=train first"):
        measured(other, tmp_path)
    (folder / "measurements").mkdir()
    (folder / "measurements" / "config.json").write_text("{}")  # left by a stop before the first table
    measured(config, folder)


def test_tables_outlive_their_checkpoints(tables, capsys):
    folder, config = tables
    whole = (folder / "results.nc").read_bytes()
    for step in (1, 2):
        shutil.rmtree(folder / "checkpoints" / str(step))
    measured(config, folder)
    assert (folder / "results.nc").read_bytes() == whole
    assert "6 checkpoints measured (0 now)" in capsys.readouterr().out


def exchanged(folder, step, other):
    """The checkpoint of a step was trained again and came out otherwise: as another one."""
    params = checkpoint.Checkpoints(folder / "checkpoints", None, reading=True).restore_params(other)
    shutil.rmtree(folder / "checkpoints" / str(step))
    with contextlib.closing(checkpoint.Checkpoints(folder / "checkpoints", None)) as store:
        store.save(step, params, {"step": jnp.int32(step)})


def test_a_table_is_measured_again_when_its_checkpoint_has_changed(tables, capsys):
    folder, config = tables
    exchanged(folder, 4, 2)
    shutil.rmtree(folder / "checkpoints" / "5")
    capsys.readouterr()
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: measured again, since a checkpoint has changed: step 4\n" in said
    assert "(1 now)" in said
    table = files.read_table(folder / "results.nc")
    np.testing.assert_array_equal(table.anisotropy.sel(step=4), table.anisotropy.sel(step=2))
    measured(config, folder)
    assert "(0 now)" in capsys.readouterr().out


@pytest.mark.slow
def test_comparisons_are_measured_again_when_what_they_compare_with_has_changed(run, capsys):
    folder, config = run
    config = comparing(config)
    measured(config, folder)
    exchanged(folder, 2, 1)
    measured(config, folder)
    assert "measured again, since a checkpoint has changed: steps 2, 4\n" in capsys.readouterr().out
    for step in (0, 4):
        shutil.rmtree(folder / "checkpoints" / str(step))
    exchanged(folder, 6, 5)
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: measured again, since a checkpoint has changed: steps 1, 2, 5, 6\n" in said
    assert "run: compared with a checkpoint that has changed; its own is gone: steps 0, 4\n" in said
    table = files.read_table(folder / "results.nc")
    np.testing.assert_allclose(table.cka_last.sel(VALUE).sel(step=5), 1.0, rtol=1e-5)
    assert dict(zip(table.step.values.tolist(), table.previous_step.values.tolist(), strict=True))[5] == 2


def test_a_table_that_does_not_say_what_it_was_made_from_stays(tables, capsys):
    folder, config = tables
    path = folder / "measurements" / "4.nc"
    table = files.read_table(path)
    del table.attrs["checkpoints"]
    files.write(table, path)
    exchanged(folder, 4, 2)
    capsys.readouterr()
    measured(config, folder)
    assert "(0 now)" in capsys.readouterr().out


@SLOW
def test_a_text_of_another_name_and_another_layout_do_not_keep_tables_apart(tables):
    folder, config = tables
    (folder / "measurements" / "6.nc").unlink()
    config = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, seeds=2))
    measured(config, folder, dataclasses.replace(tiny.corpus(), name="letters.xz"), "renamed")
    table = files.read_table(folder / "results.nc")
    assert (table.attrs["corpus"], table.attrs["run"]) == ("letters.xz", "renamed")
    assert runs.settings(table)["train.steps"] == 6
    assert "checkpoints" not in table.attrs
    frame = pd.read_csv(folder / "results.csv")
    assert (set(frame.corpus), set(frame.step)) == ({"letters.xz"}, {0, 1, 2, 4, 5, 6})


def test_steps_that_nothing_is_known_of_are_named(run, capsys):
    folder, config = run
    for step in (0, 5):
        shutil.rmtree(folder / "checkpoints" / str(step))
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: neither checkpoint nor table: steps 0, 5\n" in said
    assert "run: without step 0 there is no excess over the untrained network\n" in said
    assert np.isnan(files.read_table(folder / "results.nc").anisotropy_excess.sel(null="untrained")).all()


def test_steps_still_to_be_trained_go_without_saying(run, capsys):
    folder, config = run
    for step in (5, 6):
        shutil.rmtree(folder / "checkpoints" / str(step))
    measured(dataclasses.replace(config, measure=dataclasses.replace(config.measure, families=("spectrum",))), folder)
    assert "neither" not in capsys.readouterr().out


def test_a_damaged_table_is_one_line(tables):
    folder, config = tables
    table = folder / "measurements" / "4.nc"
    table.write_bytes(table.read_bytes()[:3000])
    with pytest.raises(RunError, match=r"table .*4\.nc is damaged .*move it away") as error:
        measured(config, folder)
    assert "\n" not in str(error.value)


def test_a_table_in_the_place_of_another_is_refused_and_nothing_is_written(tables):
    """Of another step, of another run, and of something else than the residual stream."""
    folder, config = tables
    here, whole = folder / "measurements", (folder / "results.nc").read_bytes()
    shutil.rmtree(folder / "checkpoints" / "4")  # nothing can be measured again
    own = files.read_table(here / "4.nc")
    other = json.loads(own.attrs["config"])
    other["train"]["seed"] += 1
    for table, why in (
        (files.read_table(here / "2.nc"), "of step 2, not of step 4"),
        (files.read_table(folder / "results.nc"), "of step 0, 1, 2, not of step 4"),
        (own.assign_attrs(config=json.dumps(other)), r"of another run, with train\.seed=1"),
        (own.assign_attrs(hook_point="values"), "of values, not of the residual stream"),
        (own.drop_vars("step").assign_attrs(step=4), "of points, not of the residual stream"),
        (own.assign_attrs(early_proxies="{}"), "of tangents, not of the residual stream"),
    ):
        files.write(table, here / "4.nc")
        with pytest.raises(RunError, match=rf"4\.nc says that it is {why}; move it to its place, or away") as error:
            measured(config, folder)
        assert "\n" not in str(error.value)
        assert (folder / "results.nc").read_bytes() == whole
    files.write(own, here / "4.nc")
    measured(config, folder)


def test_a_checkpoint_under_the_name_of_another_is_never_measured(run):
    folder, config = run
    for one, other in (("4", "x"), ("2", "4"), ("x", "2")):
        (folder / "checkpoints" / one).rename(folder / "checkpoints" / other)
    with pytest.raises(RunError, match=r"checkpoints/2 is damaged: it was saved at another step .*; move it elsewhere"):
        measured(config, folder)
    assert not (folder / "results.nc").exists()


def test_tables_without_the_scores_of_the_log_are_told(tables, capsys):
    folder, config = tables
    (folder / "train.jsonl").write_text("")
    measured(config, folder)
    said = "train.jsonl has no scores of steps 0, 1, 2, 4, 5, 6, and so have none of the tables"
    assert said in capsys.readouterr().out


def test_a_run_without_checkpoints_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="--stages=train first"):
        measured(tiny.config(), tmp_path)


@SLOW  # the quick ones: tests/training/test_checkpoint.py
def test_a_damaged_checkpoint_is_named_never_measured(run):
    folder, config = run
    (folder / "checkpoints" / "4" / "_CHECKPOINT_METADATA").unlink()
    with pytest.raises(RunError, match=r"checkpoints/4 is damaged.*, or it, all later ones and test\.json to train"):
        measured(config, folder)
    assert sorted(p.name for p in (folder / "measurements").glob("*.nc")) == ["0.nc", "1.nc", "2.nc"]
    assert not (folder / "results.nc").exists()
    for step in "456":
        (folder / "checkpoints" / step).rename(folder / step)
    (folder / "test.json").rename(folder / "moved.json")
    with Stop() as stop:
        loop.train(config, tiny.corpus(), {"run": folder}, "run", stop)
    measured(config, folder)
    assert list(files.read_table(folder / "results.nc").step.values) == [0, 1, 2, 4, 5, 6]


@pytest.mark.parametrize(
    ("devices", "batches", "shared"),
    [
        pytest.param(2, 1, (1, 2), marks=SLOW),
        pytest.param(2, 2, (2, 1), marks=SLOW),
        pytest.param(4, 2, (2, 2), marks=SLOW),
        pytest.param(8, 2, None, marks=SLOW),
    ],
)  # which get a set of positions each, a batch, both, and windows of every batch
def test_many_devices_measure_what_one_does(run, monkeypatch, devices, batches, shared):
    families = ("spectrum", "attention", "projection") + ("comparison",) * (devices > 2)  # two compile it in the sweep
    folder, config = run[0], replace(run[1], {"measure.families": families, "measure.batches": batches})
    monkeypatch.setattr(mesh, "devices", lambda: jax.devices()[:devices])
    found = mesh.measuring_mesh(config.measure.batches, 2)
    assert (None if found is None else found.devices.shape) == shared
    measured(config, folder)
    many = files.read_table(folder / "results.nc")
    (folder / "measurements").rename(folder / "of many")
    monkeypatch.setattr(mesh, "devices", lambda: jax.devices()[:1])
    measured(config, folder)
    alone = files.read_table(folder / "results.nc")
    for name in many.data_vars:
        np.testing.assert_allclose(many[name], alone[name], rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_weighted_tables_say_how_even_they_are_and_are_not_joined_with_others(run):
    folder, config = run
    few = {"measure.points": 14, "measure.batches": 1, "measure.folds": 1, "measure.families": ("frequency",)}
    weighted = replace(config, few | {"measure.weighting": "types", "measure.nulls": ("gaussian", "shuffled")})
    measured(weighted, folder)
    results = files.read_table(folder / "results.nc")
    assert results.attrs["weighting"].startswith("at the points 7 characters weigh as ")
    norms = results.norm_by_frequency.sel(step=6, statistic="mean", positions="all")
    assert np.isfinite(norms).any("frequency").all()
    assert np.isnan(results.frequency_correlation).all()  # of 14 points no character has 20
    with pytest.raises(UserError, match=r"measure\.weighting='types' there, 'none' now"):
        measured(replace(weighted, {"measure.weighting": "none"}), folder)


@pytest.mark.slow
def test_every_product_of_a_measurement_has_full_float32_precision():
    """On an accelerator a product without it rounds its factors to TF32 or bfloat16; a CPU cannot show that."""
    config, corpus = tiny.config(), tiny.corpus()
    model = transformer.build(config.model, corpus.vocab_size, "float32")
    params, probe = model.init(jax.random.key(0)), program.probe_of(config, corpus)
    visible_TT = visible_keys(config.model, config.model.context)
    settings = dataclasses.replace(config.measure, families=tuple(FAMILIES), nulls=NULLS)
    read = functools.partial(transformer.readout, config.model)
    spec = activations.Spec(activations.of_model(model.apply, settings, read), settings)
    compute = functools.partial(activations.measure_batches, spec)
    batches = activations.of_probe(probe, settings, visible_TT)
    text = str(jax.make_jaxpr(compute)(params, {"previous": params, "last": params}, batches))
    products = text.count("dot_general[")
    assert products > 7
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") + text.count("precision=HIGHEST") == products


def test_a_checkpoint_beside_the_schedule_is_measured_there(run):
    """As those of loss-matched contrasts: again when it has changed, and none that others are compared with."""
    folder, config = run
    config = replace(config, {"measure.families": ("similarity",), "measure.nulls": ()})
    (folder / "beside" / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "5").rename(folder / "beside" / "checkpoints" / "5")

    def beside():
        with (
            Stop() as stop,
            checkpoints.opened_beside(config, tiny.corpus(), folder, "beside", [5], "run", stop) as one,
        ):
            assert 5 not in one.store.steps()
            return sweep.measure_missing(one, stop)[1]["the residual stream"]

    path = folder / "beside" / "measurements" / "5.nc"
    assert beside() == {5}
    assert beside() == set()
    whole = files.read_table(path)
    files.write(whole.assign_attrs(checkpoints=json.dumps({5: "another network's"})), path)
    assert beside() == {5}
    assert files.read_table(path).equals(whole)


@pytest.mark.slow
def test_a_run_has_the_readout_where_it_is_named_beside_the_untrained_model(run):
    folder, config = run
    measured(replace(config, {"measure.families": ("readout",), "measure.nulls": ("untrained",)}), folder)
    results = files.read_table(folder / "results.nc").sel(step=6, positions="all")
    loss = results.readout_loss.sel(statistic="mean")
    assert (loss > 0).all()
    assert float(results.readout_divergence.sel(statistic="mean")[-1]) < 1e-5
    assert float(results.readout_settled.sel(statistic="mean")[-1]) == 1
    assert np.isfinite(results.readout_loss_excess.sel(null="untrained", statistic="low")).all()
    assert results.readout_settled_over_blocks.attrs["long_name"].endswith("mean over blocks 1 to N")


def spread(cloud):
    """Mean squared distance from the centre, on all folds and without each."""

    def read(keep_P):
        mean_D = keep_P @ cloud.points_PD / keep_P.sum()
        return {"spread": keep_P @ jnp.square(cloud.points_PD - mean_D[None]).sum(axis=1) / keep_P.sum()}

    return over_folds(read, cloud.folds, len(cloud.points_PD))


@pytest.mark.slow
def test_a_family_from_outside_is_in_the_results_beside_what_was_measured_before(run, monkeypatch):
    folder, config = run
    of_cloud = tuple(null for null in NULLS if null != PERMUTED)
    before = replace(config, {"measure.families": ("spectrum",), "measure.nulls": ("shuffled",)})
    measured(before, folder)
    old = {step: files.read_table(folder / "measurements" / f"{step}.nc").anisotropy for step in (0, 6)}
    words = {"long_name": "spread", "units": "activation^2", "formula": "E |x - E x|^2", "source": "a test"}
    quantity = Quantity(**words, resampling="jackknife")
    family = Family(of="cloud", measure=spread, quantities={"spread": quantity}, nulls=of_cloud)
    monkeypatch.setitem(FAMILIES, "toy", family)
    measured(replace(config, {"measure.families": ("spectrum", "toy"), "measure.nulls": of_cloud}), folder)

    table, excess = (files.read_table(folder / "results.nc")[name] for name in ("spread", "spread_excess"))
    assert table.attrs["formula"] == "E |x - E x|^2"
    value = table.sel(step=6)
    assert (value.sel(statistic="low") < value.sel(statistic="mean")).all()
    assert (value.sel(statistic="mean") < value.sel(statistic="high")).all()
    assert excess["null"].values.tolist() == list(of_cloud)
    assert np.isfinite(excess).all()
    assert (np.abs(excess.sel(null="gaussian", statistic="mean")) < 0.1 * value.max()).all()  # of the same spectrum
    assert (excess.sel(null="untrained", statistic="mean", step=6) != 0).all()
    assert "spread" in set(pd.read_csv(folder / "results.csv").metric)
    for step, one in old.items():
        again = files.read_table(folder / "measurements" / f"{step}.nc").anisotropy
        np.testing.assert_array_equal(again.sel(cloud=one.cloud), one)
