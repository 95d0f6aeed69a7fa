"""Figures of untrained blocks, from every table that an experiment can leave: nothing cut off,
nothing overlapping.
"""

import dataclasses

import numpy as np
import pytest

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.plot import draw
from anisoscope.sources import untrained_tables
from anisoscope.sources.untrained_tables import UNTRAINED_MEASURED, bias_norm, kinds
from tests.plot.reading import footer_of, inside

SMALL = UntrainedConfig(
    width=16, heads=2, vocabulary=50, sequences=2, context=8, norms=(0.0, 0.1, 1.0, 10.0, 1000.0)
)


def make(**settings):
    """The joined table of an experiment whose numbers are made up."""
    config = dataclasses.replace(SMALL, **settings)
    rng = np.random.default_rng(0)
    parts = []
    for kind in kinds(config):
        for index, relative in enumerate(config.norms):
            norm = bias_norm(config, kind, relative)
            values = {
                name: np.exp(-3 * rng.random((config.seeds, config.blocks)))
                for name in UNTRAINED_MEASURED
            }
            values |= {name: values[name][:, 0] for name in ("cosine_in", "norm_in")}
            values["norm_in"] = 0.1 + norm + 0 * values["norm_in"]
            parts.append(untrained_tables.kind_table(config, kind, index, values))
    seeds, quantities = (
        untrained_tables.combine(config, parts),
        untrained_tables.UNTRAINED_QUANTITIES,
    )
    predicted = untrained_tables.predictions(config, seeds)
    return untrained_tables.summarize_seeds(quantities, seeds, predicted)


# as many panels as there can be; both orders in the next
EVERY = {"blocks": 3, **CHOICES, "norm_orders": ("post",)}
CASES = {
    "every choice but one": pytest.param(EVERY, marks=pytest.mark.slow),
    "default": {},
    "one seed and norm": {"seeds": 1, "norms": (0.0,)},
    "no input": {"targets": ("keys", "both")},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_every_figure_lays_itself_out_with_its_origin(settings):
    table = make(**settings)
    drawn = {
        name: figure for name, build in draw.UNTRAINED_FIGURES.items() if (figure := build(table))
    }
    for name, figure in drawn.items():
        inside(figure, name)
        assert table.attrs["description"] in footer_of(figure)
    targets = settings.get("targets", ("input",))
    expected = {"untrained_sharpness"}
    expected |= {"untrained_cosine", "untrained_norm"} if "input" in targets else set()
    assert drawn.keys() == expected


def test_what_is_drawn_is_in_the_table():
    table = make().sel(norm_order=["post"])
    (ax,) = draw.UNTRAINED_FIGURES["untrained_norm"](table).axes
    line = next(line for line in ax.lines if line.get_marker() == "o")
    kind = table.squeeze()
    np.testing.assert_array_equal(line.get_xdata(), kind.norm_in.sel(statistic="mean"))
    np.testing.assert_array_equal(line.get_ydata(), kind.norm_out.sel(statistic="mean"))
    measured, closed, *_ = draw.UNTRAINED_FIGURES["untrained_sharpness"](table).axes[0].lines
    np.testing.assert_array_equal(closed.get_ydata(), kind.cosine_in.sel(statistic="predicted"))
    np.testing.assert_array_equal(measured.get_ydata(), kind.cosine_in.sel(statistic="mean"))


def test_a_fixed_point_is_marked_only_where_seeds_agree():
    table = make().sel(norm_order=["post"])
    for low, mean, words in (
        *((2.0, 3.0, "fixed point 3 ± 1"), (-1.0, 3.0, "no fixed point that seeds agree on")),
        *((np.nan, 3.0, "fixed point 3"), (2.0, np.nan, "no fixed point of all seeds")),
    ):
        ends = {"low": low, "mean": mean, "high": 6 - low}
        for statistic, value in ends.items():
            table["fixed_point"].loc[{"statistic": statistic}] = value
        (ax,) = draw.UNTRAINED_FIGURES["untrained_norm"](table).axes
        assert ax.lines[-1].get_label() == words
        assert (ax.lines[-1].get_marker() == "*") == words.startswith("fixed")
