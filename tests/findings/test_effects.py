"""The figure of all claims."""

import numpy as np
import pandas as pd

from findings.claims import effects_figure
from findings.claims import verdicts as claims
from findings.claims.claim_entries import CLAIMS


def test_effects_are_drawn_in_units_of_the_smallest_with_low_bars_last():
    columns = ("claim", "verdict", "effect", "low", "high", "p_project", "reason")
    rows = [
        ("drift_grows", claims.REPRODUCED, 2.0, 1.5, 2.5, 0.01, ""),
        ("stabilization", claims.CONTRADICTED, 0.15, 0.1, 0.2, 1.0, ""),
        ("growth", claims.REPRODUCED, 0.10, 0.06, 0.14, 0.01, ""),
        ("growth", claims.EQUIVALENT, 0.0, -0.01, 0.01, 0.2, ""),
        ("growth", claims.INCONCLUSIVE, 9.0, 8.0, 10.0, np.nan, "too few seeds"),
    ]
    figure = effects_figure.effects(pd.DataFrame(rows, columns=columns).assign(role="three papers"))
    (ax,) = figure.axes
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    np.testing.assert_allclose([mark.get_xdata()[0] for mark in marks], [0, 2, -3, 4])
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [True, False, True, False]
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names.index("Anisotropy of decoders grows") < names.index(effects_figure.LOW_BAR)
    assert names[-1] == CLAIMS["drift_grows"].wording
    counts = [(text.get_text(), text.get_position()[1]) for text in ax.texts]
    assert [text for text, y in counts if y == -1] == ["1", "", "", "1", "1"]  # untested ones too
