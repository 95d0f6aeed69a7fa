"""The stage on a tiny run: against the model's own gradients, resumed, as one program."""

import dataclasses
import functools
import json
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope.models import transformer
from anisoscope.results import joined_files
from anisoscope.sources.sweep import sweep
from anisoscope.subspaces import (
    run_tangents,
    subspace_energy,
    tangent_gradients,
    tangent_stage,
)
from anisoscope.subspaces.run_tangents import NextStep
from anisoscope.training import loop, objective
from anisoscope.utils.errors import Stopped, UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace
from tests import reference_tangent as reference
from tests.subspaces.tiny_tangents import SETTINGS, config, corpus
from tests.training.test_loop import store_of

pytestmark = pytest.mark.slow
STEPS = [0, 1, 2, 4, 5, 6]
BASIS = tangent_gradients.stream_basis(16, 15)


def make_study(folder):
    """Its own early proxies are in the place of another seed's."""
    return run_tangents.RunStudy(config(), corpus(), folder, "run", folder / tangent_stage.EARLY)


def swept(folder):
    study = make_study(folder)
    with Stop() as stop:
        tangent_stage.fit_early(study, stop)
        sweep(study, stop)


def read(path):
    return joined_files.read_table(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with Stop() as stop:
        loop.train(config(), corpus(), {"run": folder}, "run", stop)
    return folder


@pytest.fixture(scope="module")
def done(trained, tmp_path_factory):
    """The run with all tables, and how often its program was traced."""
    folder, count = shutil.copytree(trained, tmp_path_factory.mktemp("done") / "run"), []
    inner = tangent_gradients.compute_gradients

    @functools.wraps(inner)
    def counted(*args):
        count.append(1)
        return inner(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tangent_gradients, "compute_gradients", counted)
        run_tangents.make_programs.cache_clear()
        swept(folder)
    return folder, len(count)


@pytest.fixture
def run(done, tmp_path):
    return shutil.copytree(done[0], tmp_path / "run")


def test_all_checkpoints_are_one_program_and_then_there_is_nothing_to_do(run, done, capsys):
    assert done[1] == 1
    table = read(run / "tangents.nc")
    assert list(table.step.values) == STEPS
    known = table.sel(rows="raw", statistic="mean", rank=2)
    for fit in ("early", "here", "previous", "untrained"):
        steps = STEPS[fit in ("previous", "untrained") :]
        for name in ("energy", "variance", "excess", "control_energy"):
            assert np.isfinite(known[name].sel(fit=fit, step=steps)).all(), (name, fit)
    assert np.isnan(known.energy.sel(fit="previous", step=0)).all()
    np.testing.assert_array_equal(known.energy.sel(fit="other seed"), known.energy.sel(fit="early"))
    np.testing.assert_allclose(known.excess_over_other_seed, 0, atol=1e-7)
    low, high = (table.excess.sel(statistic=end, fit="early") for end in ("low", "high"))
    assert (low <= high).all()
    assert np.isfinite(table.gradient_mean_cosine).all()
    # before a final norm no gradient lies along the ones, nor in its layer along the state
    means = table.sel(statistic="mean")
    assert means.ones_share.max() < 1e-6
    assert means.radial_share.sel(layer=2).max() < 1e-3 < means.radial_share.sel(layer=1).min()
    before = {path: path.read_bytes() for path in run.rglob("*.nc")}
    swept(run)
    assert "(0 now)" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in run.rglob("*.nc")} == before


def test_energies_are_those_of_the_gradients_of_the_model(run):
    settings, text, step = config(), corpus(), 4
    params = jax.tree.map(jnp.asarray, store_of(run).restore_params(step))
    model = transformer.build(settings.model, text.vocab_size, "float32")
    _, test = tangent_gradients.choose_tangent_windows(settings, SETTINGS, text)
    parts = (part.reshape(-1, part.shape[-1]) for part in test[:3])
    batch = objective.Batch(*map(jnp.asarray, parts))

    def loss(taps):
        logits, found = model.apply(params, batch.tokens_BT, taps)
        return objective.nats(logits, batch), found.resid_LBTD

    taps = jnp.zeros((3, *batch.tokens_BT.shape, 16))
    gradient, resid = map(np.asarray, jax.jit(jax.grad(loss, has_aux=True))(taps))
    window = np.arange(4)[:, None] * 4 + test.picks_JQ // 8
    own = read(run / "tangents" / f"{step}.nc").sel(rows="raw", rank=2)
    early = read(run / "tangents" / "early.nc").proxy_2
    left = np.delete(np.arange(32), np.arange(8, 16))  # without the second fold
    for layer, kind in np.ndindex(3, 2):
        places = layer, window, test.picks_JQ % 8
        g, x = (part[places].reshape(-1, 16) for part in (gradient, resid))
        frames = early.values[kind, layer], np.zeros((15, 0))
        q, found = BASIS @ frames[0], own.isel(layer=layer, kind=kind).sel(fit="early")
        variance = reference.variance_share(q, x @ BASIS @ BASIS.T)
        gain, whole = (reference.isoscore_outside(frame, g @ BASIS) for frame in frames)
        np.testing.assert_allclose(found.energy[0], reference.energy(q, g), rtol=1e-3)
        np.testing.assert_allclose(found.energy[2], reference.energy(q, g[left]), rtol=1e-3)
        np.testing.assert_allclose(found.variance[0], variance, rtol=1e-3)
        np.testing.assert_allclose(found.isoscore_gain[0], gain - whole, atol=1e-4)
    square = (gradient**2).sum(3).mean(1)
    share = square[:, 0] / square.sum(1)
    np.testing.assert_allclose(own.first_position_share[:, 0], share, rtol=1e-3)


def test_updates_are_those_of_the_training(run):
    """Steps 1 and 2, and 5 and 6, follow each other: a single step's update is that between them."""
    store = store_of(run)
    update = NextStep(config(), corpus(), store)
    for step in (1, 5):
        expected = tangent_gradients.parameter_update(*map(store.restore_params, (step, step + 1)))
        taken = tangent_gradients.collect_matrices(update.change(step))
        for name, found in tangent_gradients.matrix_rows(taken).items():
            np.testing.assert_allclose(found, expected[name], atol=1e-7)
    table = read(run / "tangents.nc").sel(rank=2, fit="previous", kind="PCA", step=6, of="between")
    q = BASIS @ read(run / "tangents" / "5.nc").proxy_2.sel(kind="PCA").values
    for name, first in {"attention": 0, "mlp": 0, "attention_out": 1, "mlp_out": 1}.items():
        energy = table.matrix_energy.sel(matrix=name)
        for block in (0, 1):
            layer = block + first  # the layer that a block reads, or writes to
            moved = expected[name][block] @ BASIS @ BASIS.T
            np.testing.assert_allclose(energy[layer], reference.energy(q[layer], moved), rtol=1e-3)
        assert np.isnan(energy[0 if first else 2])


def test_stopped_anywhere_and_gone_on_is_never_stopped(run, trained, tmp_path):
    """Half of the tables are there; later ones read the proxies of the step before from a table."""
    again = shutil.copytree(trained, tmp_path / "again")
    shutil.copytree(run / "tangents", again / "tangents")
    for step in (2, 4, 5, 6):
        (again / "tangents" / f"{step}.nc").unlink()
    stop = Stop()
    stop.requested = True
    with pytest.raises(Stopped, match="before measuring step 2"):
        sweep(make_study(again), stop)
    swept(again)
    for path in (*run.rglob("tangents/*.nc"), run / "tangents.nc"):
        assert path.read_bytes() == (again / path.relative_to(run)).read_bytes(), path


def test_primary_cells_are_those_named_beforehand_and_corrected(run):
    frame = pd.read_csv(run / "tangents_primary.csv")
    cells = [*zip(frame.layer, frame.step, frame["rank"], strict=True)]
    assert cells == [(0, 4, 2), (0, 6, 2), (1, 4, 2), (1, 6, 2)]
    assert (frame.p_holm >= frame.p).all()
    assert frame.p_holm.min() == pytest.approx(min(1, 4 * frame.p.min()))
    excess = read(run / "tangents.nc").excess.sel(rank=2, fit="early", kind="semi-NMF", rows="raw")
    for row in frame.itertuples():
        own = excess.sel(step=row.step, layer=row.layer)
        low, high = own.sel(statistic="low"), own.sel(statistic="high")
        assert (row.p < 0.05) == (not low <= 0 <= high)


def test_a_changed_checkpoint_is_read_again_and_a_lost_one_keeps_its_table(run):
    shutil.rmtree(run / "checkpoints" / "5")
    path = run / "tangents" / "6.nc"
    table = read(path)
    digests = json.dumps(json.loads(table.attrs["checkpoints"]) | {"6": "another"})
    changed = table.assign(energy=0 * table.energy).assign_attrs(checkpoints=digests)
    joined_files.write_table(changed, path)
    swept(run)
    assert list(read(run / "tangents.nc").step.values) == STEPS
    np.testing.assert_array_equal(read(path).energy, table.energy)
    # the checkpoint before is gone; its proxies are not
    assert np.isnan(read(path).matrix_energy.sel(of="between")).all()


def test_tables_of_other_proxies_are_found(run, capsys):
    study = make_study(run)
    (target,) = study.targets
    tables = dict(study.step_tables(target))
    assert study.outdated(target, tables) == {}
    for step, table in tables.items():
        before = max((other for other in STEPS if other < step), default=0)
        assert {*map(int, json.loads(table.attrs["checkpoints"]))} == {0, before, step}
    # another run was made at step 0 when this table was made, as after an interruption
    then = json.loads(tables[4].attrs["checkpoints"]) | {"0": "another"}
    changed = tables[4].assign_attrs(checkpoints=json.dumps(then))
    assert [*study.outdated(target, tables | {4: changed})] == [4, 5, 6]
    joined_files.write_table(changed, target.path(4))
    shutil.rmtree(run / "checkpoints" / "4")
    swept(run)
    assert "but its own checkpoint is gone: step 4" in capsys.readouterr().out
    now = make_study(run)
    assert [*now.outdated(target, tables | {4: changed})] == [4]  # it stays, and so does step 5
    for gone, found in ((4, [5, 6]), (0, [1, 2, 4, 5, 6])):
        study.steps = [step for step in STEPS if step != gone]
        left = {step: tables[step] for step in study.steps}
        assert [*study.outdated(target, left)] == found


def test_points_without_a_local_tangent_do_not_count():
    rng = np.random.default_rng(0)
    points, gradient, among = rng.normal(size=(3, 1, 32, 6)).astype(np.float32)
    copies = points[:, :1].repeat(4, axis=1)  # the nearest of one point, all alike
    with_copies = np.concatenate([among[:, :28], copies], axis=1)
    settings = dataclasses.replace(SETTINGS, local_points=32)
    read = types.SimpleNamespace(points_NPD=points, gradient_NPD=gradient)
    energy = subspace_energy.local_energy(read, with_copies, settings)["local_energy"]
    inside, _ = reference.local_tangent(points[0], gradient[0], with_copies[0], 4, 2)
    known = np.array([directions(point, with_copies[0]) > 1 for point in points[0]])
    assert 0 < known.sum() < 32
    expected = inside[known].sum() / np.square(gradient[0][known]).sum()
    np.testing.assert_allclose(energy[0, 0, 0, 0], expected, rtol=1e-3)


def directions(point, others):
    """In how many directions the four nearest of a point vary."""
    near = others[np.argsort(np.square(others - point).sum(1))[:4]]
    return np.linalg.matrix_rank(near - near.mean(axis=0), tol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tangents.windows": 64}, "needs twice as many: lower it to 28"),
        ({"tangents.points": 160}, "has 32 scored positions; .* lower it to 128"),
        ({"tangents.rounds": 6}, "tangents.rounds=5 there, 6 now"),
    ],
)
def test_what_the_text_or_the_tables_do_not_allow_is_told_before_any_work(run, changes, words):
    with pytest.raises(UserError, match=words):
        run_tangents.check_windows_and_tables(replace(config(), changes), corpus(), run)
    run_tangents.check_windows_and_tables(config(), corpus(), run)
