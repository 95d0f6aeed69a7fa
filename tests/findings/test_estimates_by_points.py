"""What the figure of estimates over points reads off a cloud is what the metrics give."""

import numpy as np
import pytest

from anisoscope import metrics
from findings.scripts.estimates_by_points import estimate


def test_estimates_are_those_of_the_metrics():
    cloud_PD = np.random.default_rng(0).standard_normal((200, 6)) * np.arange(1, 7) + 3
    for name, value in estimate(cloud_PD).items():
        public = getattr(metrics, {"rankme": "rankme_centered"}.get(name, name))
        assert value == pytest.approx(float(public(cloud_PD)), rel=1e-4), name
