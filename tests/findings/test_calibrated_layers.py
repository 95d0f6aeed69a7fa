"""Layers against layers: by the metric of one pair, and a best pair that is chosen from chance."""

import numpy as np
import pytest

from anisoscope.metrics import cka
from findings.scripts.calibrated_layers import calibrate_layers, describe


def test_each_pair_is_the_metric_and_permutations_move_whole_windows():
    draw = np.random.default_rng(0).standard_normal
    x_L, y_M = [draw((48, 5)), draw((48, 3))], [draw((48, 4)), draw((48, 5))]
    y_M[1] += 3 * x_L[0]
    values_LM, _ = calibrate_layers(x_L, y_M, together=8, permutations=3)
    for (layer, other), value in np.ndenumerate(values_LM):
        assert value == pytest.approx(float(cka(x_L[layer], y_M[other])), abs=1e-5)
    constant_L = [np.repeat(np.eye(6), 8, axis=0)]  # each window at its own point
    alike_11, null_K11 = calibrate_layers(constant_L, constant_L, together=8, permutations=9)
    assert alike_11.ravel() == pytest.approx(1)
    assert null_K11.ravel() == pytest.approx([1] * 9)


def test_the_best_of_many_unrelated_pairs_is_left_at_nothing():
    draw = np.random.default_rng(3).standard_normal
    x_L, y_M = ([draw((32, 4)) for _ in range(6)] for _ in range(2))
    values_LM, null_KLM = calibrate_layers(x_L, y_M, together=1, permutations=99)
    place = np.unravel_index(values_LM.argmax(), values_LM.shape)
    alone = describe(values_LM.max(), null_KLM[:, *place])
    chosen = describe(values_LM.max(), null_KLM.max((1, 2)))
    assert alone["p"] < 0.05 < chosen["p"]
    assert chosen["score"] < alone["score"]
