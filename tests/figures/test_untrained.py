"""Figures of untrained blocks, from every table that an experiment can leave: nothing cut off, nothing overlapping."""

import dataclasses

import numpy as np
import pytest

from figures import draw, style
from tests.figures.test_draw import inside
from untrained import tables as untrained_results
from untrained.blocks import kinds
from untrained.config import CHOICES, UntrainedConfig
from untrained.quantities import MEASURED
from untrained.theory import reference_norm

SMALL = UntrainedConfig(width=16, heads=2, vocabulary=50, sequences=2, context=8, norms=(0.0, 0.1, 1.0, 10.0, 1000.0))


def make(**settings):
    """The joined table of an experiment whose numbers are made up."""
    config = dataclasses.replace(SMALL, **settings)
    rng = np.random.default_rng(0)
    tables = []
    for kind in kinds(config):
        for index, relative in enumerate(config.norms):
            norm = relative * reference_norm(config, kind.norm_order, kind.embedding, kind.target)
            values = {name: np.exp(-3 * rng.random((config.seeds, config.blocks))) for name in MEASURED}
            values |= {name: values[name][:, 0] for name in ("cosine_in", "norm_in")}
            values["norm_in"] = 0.1 + norm + 0 * values["norm_in"]
            tables.append(untrained_results.table(config, kind, index, norm, values))
    return untrained_results.summary(config, untrained_results.combine(config, tables))


CASES = {
    "default": {},
    "full": {"blocks": 3, **CHOICES},
    "one seed": {"seeds": 1},
    "one norm": {"norms": (0.0,)},
    "no zero": {"norms": (0.5, 2.0)},
    "one kind": {"norm_orders": ("post",), "embeddings": ("normed",), "masks": ("causal",)},
    "no input": {"targets": ("keys", "both")},
    "queries alone": {"targets": ("queries",)},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_every_figure_lays_itself_out_with_its_origin(settings):
    table = make(**settings)
    drawn = set()
    with style.context():
        for name, build in draw.UNTRAINED.items():
            figure = build(table)
            if figure is None:
                continue
            figure.draw_without_rendering()
            inside(figure, name)
            assert table.attrs["description"] in " ".join(figure._supxlabel.get_text().split())
            drawn.add(name)
    targets = settings.get("targets", ("input",))
    expected = {"untrained_cosine", "untrained_norm", "untrained_sharpness"} if "input" in targets else set()
    expected |= {"untrained_stack"} if settings.get("blocks", 1) > 1 else set()
    expected |= {"untrained_targets"} if len(targets) > 1 else set()
    assert drawn == expected


def test_what_is_drawn_is_in_the_table():
    table = make().sel(norm_order=["post"])
    with style.context():
        (ax,) = draw.UNTRAINED["untrained_norm"](table).axes
        line = next(line for line in ax.lines if line.get_marker() == "o")
        kind = table.squeeze()
        np.testing.assert_array_equal(line.get_xdata(), kind.norm_in_mean)
        np.testing.assert_array_equal(line.get_ydata(), kind.norm_out_mean)
        left = draw.UNTRAINED["untrained_cosine"](table).axes[0]
        np.testing.assert_array_equal(left.lines[0].get_ydata(), kind.cosine_in_predicted)
        np.testing.assert_array_equal(left.lines[1].get_ydata(), kind.cosine_in_mean)


def test_a_fixed_point_is_marked_only_where_seeds_agree():
    table = make().sel(norm_order=["post"])
    for low, words in ((2.0, "fixed point 3 ± 1"), (-1.0, "agree on"), (np.nan, "fixed point 3")):
        for name, value in (("low", low), ("mean", 3.0), ("high", 6 - low)):
            table[f"fixed_point_{name}"][:] = value
        with style.context():
            (ax,) = draw.UNTRAINED["untrained_norm"](table).axes
        assert words in ax.get_legend().get_texts()[-1].get_text()
    table["fixed_point_mean"][:] = np.nan
    with style.context():
        (ax,) = draw.UNTRAINED["untrained_norm"](table).axes
    assert "no fixed point of all seeds" in ax.get_legend().get_texts()[-1].get_text()


def test_files_are_the_same_twice(tmp_path):
    table = make(blocks=2)
    first, second = (draw.draw(draw.UNTRAINED, table, tmp_path / name) for name in ("first", "second"))
    assert [path.name for path in first] == [path.name for path in second]
    assert len(first) == 2 * 4
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
