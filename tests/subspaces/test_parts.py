"""Parts of the stage without a run: settings that cannot be, an encoder's rows, energy in a bin,
the other seed.
"""

import numpy as np
import pytest

from anisoscope.config.tangents_config import early_steps
from anisoscope.subspaces import run_tangents, scored_windows, subspace_energy
from anisoscope.subspaces.tangent_limits import check_tangents
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests.subspaces.settings import SETTINGS, config, corpus


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tangents.ranks": (6,)}, "model.width=16 leaves 5 at most"),
        ({"tangents.ranks": (2, 2)}, "names 2 twice; name each once"),
        ({"tangents.ranks": ()}, "tangents.ranks is empty"),
        ({"tangents.early_fraction": 0.3}, "1 checkpoints lie in steps 1 to 1; 2 are needed"),
        ({"tangents.early_fraction": 1.0}, "and a later one"),
        ({"tangents.folds": 3}, "must divide tangents.windows"),
        ({"tangents.neighbours": 2}, "above the largest of tangents.ranks"),
        ({"tangents.local_points": 64}, "tangents.points=32 at most"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(changes, words):
    changed = replace(config(), changes)
    with pytest.raises(UserError, match=words.replace(".", r"\.")) as told:
        check_tangents(changed, changed.tangents)
    assert "\n" not in str(told.value)
    off = replace(changed, {"tangents.enabled": False})
    check_tangents(off, off.tangents)


def test_an_encoder_is_read_with_its_masked_characters():
    encoder = replace(
        config(), {"model.mask": "bidirectional", "objective": "masked", "tangents.points": 8}
    )
    text = corpus()
    for part in scored_windows.make_windows(encoder, encoder.tangents, text):
        tokens, targets, weights = (x.reshape(4, -1) for x in part[:3])
        picked = [np.take_along_axis(x, part.picks_JQ, axis=1) for x in (tokens, targets, weights)]
        assert (picked[2] == 1).all()
        assert (tokens != targets)[weights == 0].sum() == 0
        assert (tokens == text.mask_token).any()


def test_planted_enrichment_is_found_in_its_bin():
    generator = np.random.default_rng(0)
    q = np.linalg.qr(generator.normal(size=(12, 2)))[0].astype(np.float32)
    points, gradient = (generator.normal(size=(400, 12)).astype(np.float32) for _ in range(2))
    bins = np.arange(400) % 4
    gradient[bins == 3] += 3 * gradient[bins == 3] @ q @ q.T
    found = subspace_energy.of_bins(
        q, points, gradient, np.ones((1, 400), np.float32), bins[None] == np.arange(4)[:, None]
    )
    enrichment = np.asarray(found["energy_in_bin"] / found["variance_in_bin"])[:, 0]
    np.testing.assert_allclose(enrichment[:3], 1, atol=0.35)
    assert enrichment[3] > 3


def test_the_other_seed_is_the_next_run_that_differs_in_seeds_alone():
    def of(seed, **changes):
        return replace(config(), {"train.seed": seed} | changes)

    runs = {f"a{seed}": of(seed) for seed in range(3)}
    runs |= {f"b{seed}": of(seed, **{"model.layers": 3}) for seed in range(2)}
    found = {name: run_tangents.other_seed(name, runs) for name in runs}
    assert found == {"a0": "a1", "a1": "a2", "a2": "a0", "b0": "b1", "b1": "b0"}
    assert run_tangents.other_seed("a", {"a": of(0)}) is None
    runs = {f"w{w}_d{d}": of(w, **{"train.data_seed": d}) for w in (0, 1) for d in (0, 1)}
    found = {name: run_tangents.other_seed(name, runs) for name in runs}
    assert found == {"w0_d0": "w1_d0", "w0_d1": "w1_d1", "w1_d0": "w0_d0", "w1_d1": "w0_d1"}
    assert (
        run_tangents.other_seed("w0_d0", {"w0_d0": runs["w0_d0"], "w0_d1": runs["w0_d1"]}) is None
    )
    assert early_steps(config(), SETTINGS) == [1, 2]
