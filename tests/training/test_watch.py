"""What is looked at while training is what the panel's metrics say of the same activations, and disturbs nothing."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import spectrum
from anisoscope.metrics.similarity import drift, mean_cosine, mean_norm
from anisoscope.training import loop, watch
from anisoscope.utils.errors import Stopped, UserError
from anisoscope.utils.settings import replace
from tests import tiny
from tests.training.test_loop import everything, interrupted_after, log_without_speed, train
from tests.training.test_step import assert_close, trained

WATCHED = replace(tiny.config(), {"watch.every": 2, "watch.points": 40})


@pytest.mark.parametrize("points", [pytest.param(40, marks=pytest.mark.slow), 12])  # more than dimensions, and fewer
def test_values_are_those_of_the_panel_on_the_same_activations(points):
    """Anisotropy to 2 % and from below; all else to rounding."""
    config = replace(WATCHED, {"watch.points": points})
    rng = np.random.default_rng(0)
    scale_D = np.linspace(1, 3, 16) ** 2
    resid_LBTD = rng.normal(size=(3, 8, 8, 16)).astype(np.float32) * scale_D + rng.normal(size=16).astype(np.float32)
    q_NBTHK, k_NBTHK = 2 * rng.normal(size=(2, 2, 8, 8, 2, 8)).astype(np.float32)
    grads = {"blocks": {"a": {"kernel": rng.normal(size=(2, 3, 4))}, "bias": rng.normal(size=(2, 5))}, "tokens": [9.0]}
    embedding_BTD, *blocks = (jnp.asarray(x_BTD, jnp.float32) for x_BTD in resid_LBTD)

    def look(embedding_BTD, resid_LBTD, q_NBTHK, k_NBTHK):
        seen_N = jax.vmap(watch.see(config))(resid_LBTD, q_NBTHK, k_NBTHK)
        return watch.look(config, watch.cloud(config, embedding_BTD), seen_N, grads)

    found = jax.jit(look)(embedding_BTD, jnp.stack(blocks), *(jnp.asarray(x, jnp.float32) for x in (q_NBTHK, k_NBTHK)))
    assert set(found) == {*watch.LAYERS, *watch.BLOCKS}
    picks_P = np.random.default_rng(0).permutation(64)[:points]
    for n in range(3):
        cloud_PD = jnp.asarray(resid_LBTD[n].reshape(64, 16)[picks_P], jnp.float32)
        values = jax.tree.map(lambda x: x[0], spectrum.spectrum(cloud_PD))
        exact = float(spectrum.anisotropy(values))
        assert 0.98 * exact < found["anisotropy"][n] < (1 + 1e-5) * exact
        np.testing.assert_allclose(found["participation_ratio"][n], spectrum.participation_ratio(values), rtol=1e-4)
        for metric in (mean_cosine, drift, mean_norm):
            np.testing.assert_allclose(found[metric.__name__][n], metric(cloud_PD), rtol=1e-5, atol=1e-6)
    for n in range(2):
        scores_BHTT = np.einsum("bthk,bshk->bhts", *(x[n, :2].astype(np.float64) for x in (q_NBTHK, k_NBTHK))) / 8**0.5
        first = []
        for row in range(1, 8):  # row 0 has nothing to choose
            weights_BHT = np.exp(scores_BHTT[:, :, row, : row + 1])
            first.append((weights_BHT[..., 0] / weights_BHT.sum(-1)).mean())
        np.testing.assert_allclose(found["attention_first"][n], np.mean(first), rtol=1e-5)
        norm = np.sqrt((grads["blocks"]["a"]["kernel"][n] ** 2).sum() + (grads["blocks"]["bias"][n] ** 2).sum())
        np.testing.assert_allclose(found["gradient_norm"][n], norm, rtol=1e-5)


@pytest.mark.slow
def test_looking_changes_nothing_bitwise():
    (plain, without), (looked, found) = (trained(config, steps=5) for config in (tiny.config(), WATCHED))
    assert_close(plain, looked, rtol=0, atol=0)
    assert without[0].watch == {}
    seen = [bool(np.isfinite(one.watch["anisotropy"]).all()) for one in found]
    assert seen == [True, False, True, False, True]
    assert all(np.isfinite(one.watch["drift"]).all() == there for one, there in zip(found, seen, strict=True))


@pytest.fixture
def turning(monkeypatch):
    """Every third look is a turn."""

    class TurningPoints:
        def __init__(self, share):
            self.looks = 0

        def look(self, value):
            self.looks += 1
            return self.looks % 3 == 0

    monkeypatch.setattr(watch, "TurningPoints", TurningPoints)
    return replace(WATCHED, {"watch.keep": "drift", "train.steps": 14, "checkpoint.every": 14})


@pytest.mark.slow
def test_a_checkpoint_is_kept_at_a_turn_and_restarts_keep_the_same_bitwise(tmp_path, monkeypatch, turning):
    train(turning, tmp_path / "whole")
    whole, lines = everything(tmp_path / "whole", turning), log_without_speed(tmp_path / "whole")
    assert set(whole) == {0, 1, 2, 4, 8, 14} | {5, 11}
    assert [line["step"] for line in lines if line["kind"] == "watch"] == [1, 3, 5, 7, 9, 11, 13]
    assert [line["step"] for line in lines if line["kind"] == "turn"] == [5, 11]
    assert {5, 11} <= {line["step"] for line in lines if line["kind"] == "valid"}
    (drifts,) = (line["drift"] for line in lines if line["kind"] == "watch" and line["step"] == 5)
    assert next(line["drift"] for line in lines if line["kind"] == "turn") == pytest.approx(np.mean(drifts[1:]))
    for calls in (5, 7):
        folder = tmp_path / f"stopped_{calls}"
        with monkeypatch.context() as patch:
            interrupted_after(patch, calls, signal.SIGTERM)
            with pytest.raises(Stopped):
                train(turning, folder)
        log_of_it = (folder / "train.jsonl").rename(tmp_path / "elsewhere")
        with pytest.raises(UserError, match=r"train\.jsonl is gone, .* kept at turning points of drift"):
            train(turning, folder)
        log_of_it.rename(folder / "train.jsonl")
        train(turning, folder)
        assert everything(folder, turning) == whole
        assert log_without_speed(folder) == lines


def test_a_log_that_tells_of_turns_may_not_be_lost(tmp_path, turning):
    (tmp_path / "checkpoints" / "0").mkdir(parents=True)
    assert loop.kept_steps(turning, tmp_path) == [0, 1, 2, 4, 8, 14]
    (tmp_path / "checkpoints" / "5").mkdir()
    with pytest.raises(UserError, match=r"train\.jsonl is gone, .* kept at turning points of drift"):
        loop.kept_steps(turning, tmp_path)
    assert 5 not in loop.kept_steps(replace(turning, {"watch.keep": ""}), tmp_path)
    looks = [f'{{"step": {step}, "kind": "watch", "drift": [0.0, 1.0]}}\n' for step in (1, 3, 5, 7)]
    for lacking in ("", "".join(looks[:2]), looks[0] + looks[2]):
        (tmp_path / "train.jsonl").write_text(lacking)
        with pytest.raises(
            UserError, match=r"train\.jsonl lacks step .* saved at step 5, .* kept at turning points of drift"
        ):
            loop.kept_steps(turning, tmp_path)
    for whole in ("".join(looks[:3]), "".join(looks)):  # a kill leaves more lines than checkpoints
        (tmp_path / "train.jsonl").write_text(whole)
        assert 5 in loop.kept_steps(turning, tmp_path)  # though the line of the turn is cut off
    (tmp_path / "train.jsonl").write_text(whole + '{"step": 7, "kind": "turn", "drift": 1.0}\n')
    assert {5, 7} <= {*loop.kept_steps(turning, tmp_path)}
    (tmp_path / "test.json").write_text("{}")  # the run is finished, and its checkpoints may be deleted
    with pytest.raises(UserError, match=r"train\.jsonl lacks step 9, though .* kept at turning points of drift"):
        loop.kept_steps(turning, tmp_path)


def turning_points(values, share):
    """The looks at which a curve is seen to have turned."""
    seen = watch.TurningPoints(share)
    return [i for i, value in enumerate(values) if seen.look(value)]


def test_a_turn_is_a_return_by_a_share_of_the_range_and_known_from_the_past_alone():
    rise = np.linspace(0, 1, 30)
    noise = 0.02 * np.random.default_rng(0).standard_normal(90)
    assert turning_points(rise + noise[:30], 0.2) == []
    bell = np.concatenate([rise, rise[::-1], rise])
    for curve in (bell + noise, 5 - 3 * (bell + noise)):
        found = turning_points(list(curve), 0.2)
        assert len(found) == 2
        assert 30 < found[0] < 40  # the top is look 30
        assert 60 < found[1] < 70
        for count in range(90):
            assert turning_points(list(curve[:count]), 0.2) == [place for place in found if place < count]
        assert turning_points([float("nan"), *curve], 0.2) == [1 + place for place in found]
    assert turning_points(list(bell + noise), 1.0) == []
    many = np.tile(np.concatenate([rise, rise[::-1]]), 20)
    assert len(turning_points(list(many), 0.2)) == watch.MOST
    assert turning_points([1.0] * 50, 0.2) == turning_points([], 0.2) == []
