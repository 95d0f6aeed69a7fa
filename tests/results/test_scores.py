"""What a log says of a step stands in the table of that step."""

import numpy as np

from anisoscope.results.scores import scores


def test_scores_are_those_of_the_step_and_missing_where_there_are_none():
    lines = [
        {"step": 0, "kind": "valid", "bits_per_character": 8.0, "context_gain": -3.0},
        {"step": 2, "kind": "train", "bits_per_character": 1.0, "context_gain": 9.0},
        {"step": 4, "kind": "valid", "bits_per_character": 5.0, "context_gain": 0.5},
    ]
    found = scores(lines, [0, 2, 4])
    np.testing.assert_array_equal(found.validation_context_gain, [-3.0, np.nan, 0.5])
    np.testing.assert_array_equal(found.validation_bits, [8.0, np.nan, 5.0])
    # as in a decoder, or a log of old
    assert set(found) == {"validation_context_gain", "validation_bits"}
    assert not set(scores([], [0, 2]))
