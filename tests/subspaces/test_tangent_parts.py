"""Parts of the stage without a trained run."""

import numpy as np
import pytest

from anisoscope.config.tangents_config import early_steps
from anisoscope.subspaces import run_tangents, subspace_energy
from anisoscope.subspaces.tangent_gradients import (
    NO_BIN,
    check_tangents,
    choose_tangent_windows,
)
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests.subspaces.tiny_tangents import SETTINGS, config, corpus


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tangents.ranks": (6,)}, "allows 5 at most"),
        ({"tangents.early_fraction": 0.3}, "1 checkpoints lie in steps 1 to 1; 2 are needed"),
        ({"tangents.early_fraction": 1.0}, "and a later one"),
        ({"tangents.folds": 3}, "must divide tangents.windows"),
        ({"tangents.neighbors": 2}, "exceed tangents.ranks"),
        ({"tangents.families": ("spectrum", "comparison")}, "comparison does not read single"),
    ],
)
def test_impossible_settings_are_refused_unless_switched_off(changes, words):
    changed = replace(config(), changes)
    with pytest.raises(UserError, match=words):
        check_tangents(changed, changed.tangents)
    off = replace(changed, {"tangents.enabled": False})
    check_tangents(off, off.tangents)


def test_an_encoder_is_read_with_its_masked_characters():
    changes = {"model.mask": "bidirectional", "objective": "masked", "tangents.points": 8}
    encoder, text = replace(config(), changes), corpus()
    for part in choose_tangent_windows(encoder, encoder.tangents, text):
        tokens, targets, weights = (x.reshape(4, -1) for x in part[:3])
        assert (np.take_along_axis(weights, part.picks_JQ, axis=1) == 1).all()
        assert (tokens == targets)[weights == 0].all()
        assert (tokens == text.mask_token).any()


def test_a_character_that_is_not_read_is_in_no_bin():
    changed = replace(config(), {"model.same_first": True})
    for part in choose_tangent_windows(changed, changed.tangents, corpus()):
        assert (part.time_P == 0).any()
        np.testing.assert_array_equal(part.bins_P == NO_BIN, part.time_P == 0)


def test_planted_enrichment_is_found_in_its_bin():
    generator = np.random.default_rng(0)
    q = np.linalg.qr(generator.normal(size=(12, 2)))[0].astype(np.float32)
    points, gradient = (generator.normal(size=(400, 12)).astype(np.float32) for _ in range(2))
    bins = np.arange(400) % 4
    gradient[bins == 3] += 3 * gradient[bins == 3] @ q @ q.T
    found = subspace_energy.energy_by_bin(
        q, points, gradient, np.ones((1, 400), np.float32), bins[None] == np.arange(4)[:, None]
    )
    enrichment = np.asarray(found["energy_in_bin"] / found["variance_in_bin"])[:, 0]
    np.testing.assert_allclose(enrichment[:3], 1, atol=0.35)
    assert enrichment[3] > 3


def test_the_other_seed_is_the_next_run_that_differs_in_seeds_alone():
    def of(seed, **changes):
        return replace(config(), {"train.seed": seed} | changes)

    def others(runs):
        return {name: run_tangents.other_seed(name, runs) for name in runs}

    runs = {f"a{seed}": of(seed) for seed in range(3)}
    runs |= {f"b{seed}": of(seed, **{"model.layers": 3}) for seed in range(2)}
    assert others(runs) == {"a0": "a1", "a1": "a2", "a2": "a0", "b0": "b1", "b1": "b0"}
    runs = {f"w{w}_d{d}": of(w, **{"train.data_seed": d}) for w in (0, 1) for d in (0, 1)}
    assert others(runs) == {"w0_d0": "w1_d0", "w0_d1": "w1_d1", "w1_d0": "w0_d0", "w1_d1": "w0_d1"}
    alone = {name: runs[name] for name in ("w0_d0", "w0_d1")}
    assert others(alone) == dict.fromkeys(alone)
    assert early_steps(config(), SETTINGS) == [1, 2]
