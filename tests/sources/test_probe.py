import numpy as np
import pytest

from sources.probe import POSITION_SETS, make_probe
from workdir.errors import UserError

CONTEXT, POINTS, BATCHES, GROUPS = 16, 40, 3, 2  # two windows of 15 later positions hold 20 points
TOKENS = (np.arange(16 * 20 + 7) % 251).astype(np.uint8)


def probe(tokens=TOKENS, points=POINTS, batches=BATCHES, groups=GROUPS, seed=0):
    return make_probe(tokens, CONTEXT, points, batches, groups, seed)


def test_windows_are_aligned_whole_and_drawn_once():
    position = np.arange(len(TOKENS), dtype=np.int32)
    windows = make_probe(position, CONTEXT, POINTS, BATCHES, GROUPS, 0).tokens_GWT
    assert windows.shape == (BATCHES, 4, CONTEXT)
    assert windows.dtype == np.int32
    starts = windows[:, :, 0]
    np.testing.assert_array_equal(windows, starts[:, :, None] + np.arange(CONTEXT))
    assert (starts % CONTEXT == 0).all()
    assert len(np.unique(starts)) == starts.size
    np.testing.assert_array_equal(probe().tokens_GWT, TOKENS[windows])


def test_picks_are_drawn_once_and_shuffled():
    picks = probe().picks_SGP
    assert picks.shape == (len(POSITION_SETS), BATCHES, POINTS)
    assert picks.dtype == np.int32
    assert picks.min() >= 0
    assert picks.max() < 4 * CONTEXT
    for of_batch in picks.reshape(-1, POINTS):
        assert len(np.unique(of_batch)) == POINTS
        assert (np.diff(of_batch) < 0).any()


def test_without_first_leaves_out_position_0_and_little_else():
    everything, without_first = probe().picks_SGP
    assert (everything % CONTEXT == 0).any()
    assert (without_first % CONTEXT != 0).all()
    for kept, all_positions in zip(without_first, everything, strict=True):
        assert set(all_positions[all_positions % CONTEXT != 0]) <= set(kept)


@pytest.mark.parametrize(
    ("points", "groups", "windows"), [(15, 1, 1), (16, 1, 2), (30, 1, 2), (31, 1, 3), (30, 2, 2), (32, 2, 4)]
)
def test_takes_the_fewest_windows_that_hold_the_points(points, groups, windows):
    assert probe(points=points, batches=1, groups=groups).tokens_GWT.shape[1] == windows


def test_points_of_a_group_lie_in_windows_of_that_group():
    picks = probe(groups=4).picks_SGP  # one window a group
    np.testing.assert_array_equal(picks // CONTEXT, np.broadcast_to(np.repeat(np.arange(4), 10), picks.shape))


def test_shuffled_input_is_the_same_characters_in_another_order():
    found = probe()
    for text, shuffled in zip(found.tokens_GWT, found.shuffled_GWT, strict=True):
        np.testing.assert_array_equal(np.sort(text, axis=None), np.sort(shuffled, axis=None))
        assert (text != shuffled).mean() > 0.5


def test_is_a_function_of_the_seed():
    for found, again, other in zip(probe(), probe(), probe(seed=1), strict=True):
        np.testing.assert_array_equal(found, again)
        assert (found != other).any()


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (
            11,
            "the validation split has 176 characters, 11 windows of 16; measure.points=40 x measure.batches=3 in 2 "
            "groups needs 12: lower measure.points to 30 or measure.batches to 2",
        ),
        (
            2,
            "the validation split has 32 characters, 2 windows of 16; measure.points=40 x measure.batches=3 in 2 "
            "groups needs 12: lower measure.points to 30 and measure.batches to 1",
        ),
        (
            0,
            "the validation split has 0 characters, 0 windows of 16; measure.points=40 x measure.batches=3 in 2 "
            "groups needs 12: lower model.context, or take a longer text",
        ),
    ],
)
def test_too_few_characters_say_what_to_lower(windows, message):
    with pytest.raises(UserError) as raised:
        probe(TOKENS[: windows * CONTEXT])
    assert str(raised.value) == message


@pytest.mark.parametrize("windows", range(1, 12))
def test_the_advice_is_enough(windows):
    tokens = TOKENS[: windows * CONTEXT]
    with pytest.raises(UserError) as raised:
        probe(tokens)
    for remedy in str(raised.value).split(": lower ")[1].split(" or "):
        lowered = dict(part.removeprefix("measure.").split(" to ") for part in remedy.split(" and "))
        lowered = {name: int(value) for name, value in lowered.items()}
        probe(tokens, **{"points": POINTS, "batches": BATCHES, "groups": GROUPS} | lowered)
