"""The closed form of findings/scripts/one_vector.py against clouds that hold one long vector."""

import numpy as np
import pytest

from anisoscope.metrics import anisotropy
from findings.scripts.one_vector import bounds


@pytest.mark.parametrize(("axis", "end"), [(0, 1), (9, 0)], ids=["first direction", "orthogonal"])
@pytest.mark.parametrize("scatter", [0.5, 3, 40])
def test_the_bounds_are_reached(axis, end, scatter):
    """Four windows, each of one long vector and a rest that scatters along nine axes of ten."""
    length = 32
    rest_PD = np.random.default_rng(0).standard_normal((4 * (length - 1), 10))
    rest_PD -= rest_PD.mean(0)
    basis_DD = np.linalg.svd(rest_PD)[2]
    rest_PD = rest_PD @ basis_DD.T @ np.diag([*np.linspace(2, 1, 9), 0])
    rest = float(anisotropy(rest_PD))
    squared_ratio = scatter * length  # enough for the long vector to be the first direction
    size = np.sqrt(squared_ratio * np.square(rest_PD).sum(1).mean())
    long_PD = np.tile(size * np.eye(10)[axis], (4, 1))
    whole = float(anisotropy(np.concatenate([rest_PD, long_PD])))
    assert whole == pytest.approx(bounds(squared_ratio, rest, length)[end], abs=1e-5)
