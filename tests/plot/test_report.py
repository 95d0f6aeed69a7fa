"""report.html: what plotly is given is what the tables hold, and no name does harm."""

import base64

import numpy as np
import pytest

import anisoscope
from anisoscope.plot import report
from anisoscope.plot.run_tables import POSITIONS, Run
from tests.plot.tables import changed, lacking, make_run
from tests.plot.test_tangents import table as tangents

NASTY = "</script><script>alert(1)</script> <!-- & \"'"
SMALL = {"steps": (0, 1, 8), "layers": 2, "heads": 2, "batches": 2}


@pytest.fixture(scope="module")
def runs():
    """A run of another depth holds infinity and lacks a family; the first has tangents."""
    other = lacking(make_run(False, **SMALL | {"layers": 3}), "query_drift", "query_projection")
    other = changed(
        other, lambda table: table.assign(twonn=table.twonn.where(table.layer > 0, np.inf))
    )
    decoder = make_run(**SMALL)
    return {"decoder": Run(decoder.results, [], tangents()), "encoder": other}


def numbers(values):
    return np.frombuffer(base64.b64decode(values["bdata"]), "<f4")


def test_every_quantity_is_in_the_menu_and_every_value_that_of_the_table(runs):
    members = report.families(runs)
    named = {words for own in members.values() for curves in own.values() for words in curves}
    table = runs["decoder"].results
    for name in table.data_vars:
        if name.endswith("_excess"):
            of = table[name.removesuffix("_excess")].attrs["long_name"]
            assert any(words.startswith(of) and "excess over" in words for words in named), name
    for family, own in members.items():
        figure = report.figure(own)
        buttons = figure["layout"]["updatemenus"][0]["buttons"]
        assert [button["label"] for button in buttons] == [
            *dict.fromkeys(words for curves in own.values() for words in curves)
        ]
        steps = [frame["name"] for frame in figure["frames"]]
        assert steps in ([], ["0", "1", "8"]) or family == "tangents"
        sliders = figure["layout"]["sliders"]
        assert [step["label"] for slider in sliders for step in slider["steps"]] == steps
        for frame in figure["frames"]:
            assert len(frame["data"]) == len(figure["data"])


def test_a_line_has_the_values_of_its_step_and_positions_and_a_band_its_interval(runs):
    figure = report.figure(report.families(runs)["spectrum"])
    menu, positions = figure["layout"]["updatemenus"]
    assert [button["label"] for button in positions["buttons"]] == [*POSITIONS.values()][:2]
    (number,) = [n for n, one in enumerate(menu["buttons"]) if one["label"] == "effective rank"]
    visible = menu["buttons"][number]["args"][0]["visible"]
    for side, button in zip(("all", "without_first"), positions["buttons"], strict=True):
        axes = button["args"][0]
        places = [n for n, seen in enumerate(visible) if seen and axes["xaxis"][n] == "x"]
        assert len(places) == 4  # a band and a line for each run
        assert sum(axes["showlegend"][n] for n in places) == 2
        for frame in figure["frames"]:
            for place, run in zip(places[1::2], runs.values(), strict=True):
                values = run.results.effective_rank.sel(step=int(frame["name"]), positions=side)
                line, band = frame["data"][place], frame["data"][place - 1]
                mean = values.sel(statistic="mean").values.astype("f4")
                np.testing.assert_array_equal(numbers(line["y"])[:-1], mean)
                np.testing.assert_array_equal(numbers(line["x"])[:-1], values.layer)
                ends = [values.sel(statistic=end).values.astype("f4") for end in ("high", "low")]
                expected = np.concatenate([ends[0], ends[1][::-1]])
                np.testing.assert_array_equal(numbers(band["y"])[:-1], expected)


def test_further_dimensions_are_pieces_of_a_line_and_what_has_no_depth_lies_over_steps(runs):
    figure = report.figure(report.families(runs)["outliers"])
    line = figure["data"][1]
    values = runs["decoder"].results.coordinate_share.sel(step=8, positions="all", statistic="mean")
    pieces = numbers(line["y"]).reshape(3, -1)
    np.testing.assert_array_equal(
        pieces[:, :-1], values.transpose("top", "layer").values.astype("f4")
    )
    assert np.isnan(pieces[:, -1]).all()
    assert line["text"][::4] == [f"top {top}" for top in values.top.values]
    (over,) = [
        line
        for line in report._lines("", "", runs["decoder"].results.anisotropy_over_blocks)
        if line.side == "all"
    ]
    assert (over.along, over.steps, over.x.tolist()) == ("step", [], [0, 1, 8])


def test_tangents_have_a_figure_and_the_page_holds_its_library_and_origin(runs):
    page = report.page(runs, "demo")
    assert "<h2>tangents</h2>" in page
    assert page.count("plotly.js v") == 1
    assert "enwik8, first 4,154,399 bytes" in page
    assert "https://cdn" not in page.partition("<h2>outliers")[2]


def test_names_do_no_harm(runs):
    page = report.page({NASTY: runs["encoder"]}, NASTY)
    assert "alert(1)</script>" not in page


def test_a_table_of_ones_own_and_several_are_written_and_no_other_file_is_replaced(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 64, 4)).astype(np.float32)
    table = anisoscope.measure(x, families="similarity", nulls=(), names=["first", "second"])
    path = anisoscope.report(table, tmp_path / "page.html")
    assert "layer 0: first" in path.read_text()
    anisoscope.report({"a": table, "b": table}, path)
    assert "<title>a, b</title>" in path.read_text()
    (tmp_path / "mine.html").write_text("notes")
    with pytest.raises(ValueError, match="name another path"):
        anisoscope.report(table, tmp_path / "mine.html")
    with pytest.raises(ValueError, match="no folder"):
        anisoscope.report(table, tmp_path / "none" / "page.html")
