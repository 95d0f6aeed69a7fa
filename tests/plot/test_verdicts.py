"""Forest, matrix and levels: that each mark is where the table has its number, and titles say what
tables say.
"""

import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import primary
from anisoscope.analysis.claims import verdicts as claims
from anisoscope.plot import draw, verdict_figures
from anisoscope.plot.experiment_figures import Compared
from tests.plot.reading import caption_of, footer_of, inside, title_of

VERDICTS = (
    primary.DIFFERS,
    primary.BOTH,
    primary.WITHIN,
    primary.OPEN,
    primary.UNTESTED,
    primary.NOTHING,
)
QUANTITIES = ("middle_less_ends", "growth", "unevenness", "expansion", "drift_growth", "last_drift")


@pytest.fixture
def table() -> pd.DataFrame:
    """A contrast of each verdict, the second without a margin."""
    frame = pd.DataFrame({"quantity": QUANTITIES, "verdict": VERDICTS, "change": np.arange(1.0, 7)})
    frame = frame.assign(
        name=frame["quantity"], at="matched", before="learned_decoder", after="rotary_decoder"
    )
    frame = frame.assign(
        positions="all",
        margin=[0.5, np.nan, *[0.5] * 4],
        low=frame["change"] - 1,
        high=8.0,
        pairs=5,
    )
    return frame.assign(**dict.fromkeys(primary.TESTS, 0.01))


def test_prespecified_contrasts_are_a_forest_in_units_of_their_margins(runs, table):
    figure = draw.EXPERIMENT["primary_contrasts"](Compared(runs, None, None, None, table))
    inside(figure, "primary_contrasts")
    told = "Of 5 prespecified changes, loss-matched: 2 differ from 0, 1 equivalent to 0, 2 inconclusive"
    assert title_of(figure) == told
    assert (
        "the 6 contrasts prespecified before any number was seen. Without value: last_drift."
        in caption_of(figure)
    )
    assert "Shaded: prespecified margin." in footer_of(figure)
    (ax,) = figure.axes
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names[:2] == ["learned decoder → rotary decoder", "middle of anisotropy less its ends"]
    marks = [line for line in ax.lines if line.get_marker() in ("o", "s")]
    assert [mark.get_label() for mark in marks] == [*VERDICTS[:5]]
    np.testing.assert_allclose([mark.get_xdata()[0] for mark in marks], [2, np.nan, 6, 8, 10])
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [False] * 3 + [True] * 2
    assert [text.get_text().split("  ")[1] for text in ax.texts] == [*VERDICTS[:5]]
    assert draw.EXPERIMENT["primary_contrasts"](Compared(runs, None, None, None, table[5:])) is None


def test_the_matrix_has_in_each_cell_the_verdict_of_most_and_of_equal_ones_the_less_certain():
    rows = [("one", "growth", model, claims.REPRODUCED) for model in ("a", "b")]
    rows += [
        (*place, "a", claims.CONTRADICTED)
        for place in (("two", "growth"), ("one", "stabilisation"))
    ]
    rows += [("one", "stabilisation", "b", claims.INCONCLUSIVE)]
    frame = pd.DataFrame(rows, columns=["experiment", "claim", "model", "verdict"]).assign(
        paper="paper"
    )
    columns = {"decoders": [("one", "a"), ("one", "b"), ("two", "a")], "none": [("three", "a")]}
    growth, stable = (frame[frame.claim == name] for name in ("growth", "stabilisation"))
    assert verdict_figures.cell(growth, columns["decoders"]) == (claims.REPRODUCED, 2, 3)
    assert verdict_figures.cell(stable, columns["decoders"]) == (claims.INCONCLUSIVE, 1, 2)
    assert verdict_figures.cell(stable, columns["none"]) == ("", 0, 0)
    figure = verdict_figures.matrix(frame, columns)
    assert [text.get_text() for text in figure.axes[0].texts] == ["+  2/3", "?  1/2"]
    assert (
        title_of(figure)
        == "Of 5 verdicts on the papers' claims 2 reproduced, 2 contradicted, 1 inconclusive"
    )


def test_a_change_over_levels_is_drawn_and_told_where_its_sign_turns(runs):
    place = {
        "setting": "model.sink",
        "before": "no sink",
        "after": "sink",
        "held": "",
        "positions": "all",
    }
    frame = pd.DataFrame(
        {"quantity": ["growth"] * 4 + ["expansion"] * 4, "level": [0.5, 1.0, 1.5, 2.0] * 2}
    )
    frame = frame.assign(**place, change=[-1, -1, 1, 1, 1, 2, 3, 4])
    frame = frame.assign(low=frame["change"] - 0.5, high=frame["change"] + 0.5)
    figure = draw.EXPERIMENT["contrasts_by_level"](Compared(runs, None, None, by_level=frame))
    inside(figure, "contrasts_by_level")
    (line,) = [line for line in figure.axes[0].lines if line.get_label() == "no sink → sink"]
    np.testing.assert_allclose(line.get_xydata(), [(0.5, -1), (1, -1), (1.5, 1), (2, 1)])
    assert "1 of 2 contrasts (growth of anisotropy) changes sign" in title_of(figure)
    assert draw.EXPERIMENT["contrasts_by_level"](Compared(runs, None, None)) is None
