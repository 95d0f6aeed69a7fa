"""The stage on a tiny run: its numbers against the model's own gradients, resumption, one program,
refusals.
"""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from anisoscope.models import transformer
from anisoscope.results import joined_files
from anisoscope.subspaces import (
    run_tangents,
    scored_windows,
    states_and_gradients,
    tangent_program,
    weight_gradients,
)
from anisoscope.training import loop, objective
from anisoscope.training.replay import NextStep
from anisoscope.utils.errors import Stopped, UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop
from tests import reference_tangent as reference
from tests.subspaces.settings import SETTINGS, config, corpus
from tests.training.test_loop import store_of

STEPS = [0, 1, 2, 4, 5, 6]


def swept(settings, folder, other=None, stop=None):
    with stop or Stop() as asked:
        run_tangents.fit_early(settings, corpus(), folder, "run", asked)
        run_tangents.sweep(settings, corpus(), folder, "run", asked, other)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with Stop() as stop:
        loop.train(config(), corpus(), {"run": folder}, "run", stop)
    return folder


@pytest.fixture(scope="module")
def done(trained, tmp_path_factory):
    """The run with all tables, its own early proxies in the place of another seed's; and how often
    it was traced.
    """
    folder, count = shutil.copytree(trained, tmp_path_factory.mktemp("done") / "run"), []
    inner = states_and_gradients.states_and_gradients

    @functools.wraps(inner)
    def counted(*args):
        count.append(1)
        return inner(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states_and_gradients, "states_and_gradients", counted)
        tangent_program.computations.cache_clear()
        swept(config(), folder, folder)
    return folder, len(count)


@pytest.fixture
def run(done, tmp_path):
    return shutil.copytree(done[0], tmp_path / "run")


@pytest.mark.slow
def test_all_checkpoints_are_one_program_and_then_there_is_nothing_to_do(run, done, capsys):
    assert done[1] == 1
    table = joined_files.read_table(run / "tangents.nc")
    assert list(table.step.values) == STEPS
    known = table.sel(rows="raw", statistic="mean", rank=2)
    for fit, steps in {
        "early": STEPS,
        "here": STEPS,
        "previous": STEPS[1:],
        "untrained": STEPS[1:],
    }.items():
        for name in ("energy", "variance", "excess", "control_energy"):
            assert np.isfinite(known[name].sel(fit=fit, step=steps)).all(), (name, fit)
    assert np.isnan(known.energy.sel(fit="previous", step=0)).all()
    np.testing.assert_array_equal(known.energy.sel(fit="other seed"), known.energy.sel(fit="early"))
    np.testing.assert_allclose(known.excess_over_other_seed, 0, atol=1e-7)
    assert (
        (table.excess.sel(statistic="low") <= table.excess.sel(statistic="high"))
        .sel(step=6, fit="early")
        .all()
    )
    assert np.isfinite(table.gradient_mean_cosine).all()
    assert "scored" in table.attrs["positions"]
    assert "reconstruction" in table.energy.attrs["source"]
    before = {path: path.read_bytes() for path in run.rglob("*.nc")}
    swept(config(), run, run)
    assert "(0 now)" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in run.rglob("*.nc")} == before


@pytest.mark.slow
def test_energies_are_those_of_the_gradients_of_the_model(run):
    settings, text, step = config(), corpus(), 4
    params = jax.tree.map(jnp.asarray, store_of(run, settings).restore_params(step))
    model = transformer.build(settings.model, text.vocab_size, "float32")
    _, test = scored_windows.make_windows(settings, SETTINGS, text)
    tokens, targets, weights = (part.reshape(-1, part.shape[-1]) for part in test[:3])
    batch = objective.Batch(*map(jnp.asarray, (tokens, targets, weights)))

    def loss(taps):
        logits, found = model.apply(params, batch.tokens_BT, taps)
        return objective.nats(logits, batch), found.resid_LBTD

    taps = jnp.zeros((3, *tokens.shape, 16))
    gradient, resid = map(np.asarray, jax.jit(jax.grad(loss, has_aux=True))(taps))
    window = np.arange(4)[:, None] * 4 + test.picks_JQ // 8
    own = joined_files.read_table(run / "tangents" / f"{step}.nc").sel(rows="raw", rank=2)
    basis = states_and_gradients.coordinates(settings.model)
    early = joined_files.read_table(run / "tangents" / run_tangents.EARLY).proxy_2
    for layer in range(3):
        g, x = (
            part[layer, window, test.picks_JQ % 8].reshape(-1, 16) for part in (gradient, resid)
        )
        for kind in (0, 1):
            q = basis @ early.values[kind, layer]
            found = own.isel(layer=layer, kind=kind).sel(fit="early")
            np.testing.assert_allclose(found.energy[0], reference.energy(q, g), rtol=1e-3)
            seen = x @ basis @ basis.T  # of which the mean coordinate is no part
            np.testing.assert_allclose(
                found.variance[0], reference.variance_share(q, seen), rtol=1e-3
            )
            left = np.delete(np.arange(32), np.arange(8, 16))  # without the second fold
            np.testing.assert_allclose(found.energy[2], reference.energy(q, g[left]), rtol=1e-3)
            gain = [
                reference.isoscore_outside(of, g @ basis)
                for of in (early.values[kind, layer], np.zeros((15, 0)))
            ]
            np.testing.assert_allclose(found.isoscore_gain[0], gain[0] - gain[1], atol=1e-4)
    square = (gradient**2).sum(3).mean(1)
    np.testing.assert_allclose(
        own.first_position_share[:, 0], square[:, 0] / square.sum(1), rtol=1e-3
    )


@pytest.mark.slow
def test_a_pre_ln_network_has_no_gradient_along_ones_nor_in_its_last_layer_along_the_state(run):
    table = joined_files.read_table(run / "tangents.nc").sel(statistic="mean")
    assert table.ones_share.max() < 1e-6
    assert table.radial_share.sel(layer=2).max() < 1e-3  # the norm's epsilon leaves some
    assert table.radial_share.sel(layer=1).min() > 1e-3
    assert states_and_gradients.coordinates(config().model).shape == (16, 15)
    post = replace(config(), {"model.norm": "post"})
    assert states_and_gradients.coordinates(post.model).shape == (16, 16)


@pytest.mark.slow
def test_updates_are_those_of_the_training(run):
    """Steps 1 and 2, and 5 and 6, follow each other: the update of a single step is that between
    them.
    """
    settings = config()
    store = store_of(run, settings)
    update = NextStep(settings, corpus(), store)
    for step in (1, 5):
        expected = weight_gradients.change(*(store.restore_params(at) for at in (step, step + 1)))
        for name, found in weight_gradients.rows(
            weight_gradients.take(update.change(step))
        ).items():
            np.testing.assert_allclose(found, expected[name], atol=1e-7)
    table = joined_files.read_table(run / "tangents.nc").sel(rank=2, fit="previous", kind="PCA")
    between, basis = (
        table.matrix_energy.sel(of="between", step=6),
        states_and_gradients.coordinates(settings.model),
    )
    q = basis @ joined_files.read_table(run / "tangents" / "5.nc").proxy_2.sel(kind="PCA").values
    for name in ("attention", "mlp"):
        for layer in (0, 1):
            moved = expected[name][layer] @ basis @ basis.T
            own = between.sel(matrix=name, layer=layer)
            np.testing.assert_allclose(own, reference.energy(q[layer], moved), rtol=1e-3)
    assert np.isnan(between.sel(matrix="attention", layer=2))
    for name in ("attention_out", "mlp_out"):  # of block l, which writes to layer l
        for layer in (1, 2):
            moved = expected[name][layer - 1] @ basis @ basis.T
            own = between.sel(matrix=name, layer=layer)
            np.testing.assert_allclose(own, reference.energy(q[layer], moved), rtol=1e-3)
        assert np.isnan(between.sel(matrix=name, layer=0))


@pytest.mark.slow
def test_stopped_anywhere_and_gone_on_is_never_stopped(run, trained, tmp_path):
    """Half of the tables are there; those of later steps read the proxies of the one before from
    its table.
    """
    again = shutil.copytree(trained, tmp_path / "again")
    shutil.copytree(run / "tangents", again / "tangents")
    for step in (2, 4, 5, 6):
        (again / "tangents" / f"{step}.nc").unlink()
    stop = Stop()
    stop.asked = True
    with pytest.raises(Stopped, match="before the tangents of step 2"):
        run_tangents.sweep(config(), corpus(), again, "run", stop, again)
    swept(config(), again, again)
    for path in run.rglob("tangents*/*.nc"):
        assert path.read_bytes() == (again / path.relative_to(run)).read_bytes(), path
    assert (again / "tangents.nc").read_bytes() == (run / "tangents.nc").read_bytes()


@pytest.mark.slow
def test_primary_cells_are_those_named_beforehand_and_corrected(run):
    frame = pd.read_csv(run / "tangents_primary.csv")
    assert list(zip(frame.layer, frame.step, frame["rank"], strict=True)) == run_tangents.primary(
        config()
    )
    assert run_tangents.primary(config()) == [(0, 4, 2), (0, 6, 2), (1, 4, 2), (1, 6, 2)]
    assert (frame.p_holm >= frame.p).all()
    assert frame.p_holm.min() == pytest.approx(min(1, 4 * frame.p.min()))
    table = joined_files.read_table(run / "tangents.nc").sel(
        rank=2, fit="early", kind="semi-NMF", rows="raw"
    )
    for row in frame.itertuples():
        low, high = (
            table.excess.sel(step=row.step, layer=row.layer, statistic=end)
            for end in ("low", "high")
        )
        assert (row.p < 0.05) == (not low <= 0 <= high)


@pytest.mark.slow
def test_a_changed_checkpoint_is_read_again_and_a_lost_one_keeps_its_table(run):
    shutil.rmtree(run / "checkpoints" / "5")
    path = run / "tangents" / "6.nc"
    table = joined_files.read_table(path)
    made = json.loads(table.attrs["checkpoints"]) | {"6": "another"}
    joined_files.write(
        table.assign(energy=table.energy * 0).assign_attrs(checkpoints=json.dumps(made)), path
    )
    swept(config(), run, run)
    assert list(joined_files.read_table(run / "tangents.nc").step.values) == STEPS
    again = joined_files.read_table(path)
    np.testing.assert_array_equal(again.energy, table.energy)
    # the checkpoint before is gone; its proxies are not
    assert np.isnan(again.matrix_energy.sel(of="between")).all()


@pytest.mark.slow
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
