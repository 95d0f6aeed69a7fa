"""report.html: what plotly is given is what the tables hold, and no name does harm."""

import base64
import gzip
import json
import re

import numpy as np
import pytest

import anisoscope
from anisoscope.plot import report
from anisoscope.plot.run_tables import Run
from anisoscope.plot.typeset import typeset
from tests.plot.tables import changed, lacking, make_run, make_tangents

NASTY = "</script><script>alert(1)</script> <!-- & \"'"
SMALL = {"steps": (0, 1, 8), "layers": 2, "heads": 2, "batches": 2}


@pytest.fixture(scope="module")
def runs():
    """A run of another depth holds infinity and lacks a family; the first has tangents."""
    other = lacking(make_run(False, **SMALL | {"layers": 3}), "query_drift")
    other = changed(
        other, lambda table: table.assign(twonn=table.twonn.where(table.layer > 0, np.inf))
    )
    return {"decoder": Run(make_run(**SMALL).results, [], make_tangents()), "encoder": other}


@pytest.fixture(scope="module")
def families(runs):
    return report.families(runs)


def numbers(values):
    return np.array(values, float)


def unpack(page):
    """Return the library and the figures of a page, as a browser does."""
    library, data = (
        gzip.decompress(base64.b64decode(text)).decode()
        for text in re.findall(r'await unpack\("([^"]*)"\)', page)
    )
    return library, json.loads(data)


def test_no_table_is_one_line(tmp_path):
    for draw in (
        lambda: anisoscope.report({}, tmp_path / "page.html"),
        lambda: anisoscope.plot.by_layer([], "anisotropy"),
        lambda: anisoscope.plot.effective_ranks({}),
    ):
        with pytest.raises(ValueError, match="no table was passed; pass one"):
            draw()


def test_every_quantity_and_excess_is_in_a_menu_and_every_step_a_frame(runs, families):
    words = {line.words for lines in families.values() for line in lines}
    table = runs["decoder"].results
    for name in (name for name in table.data_vars if name.endswith("_excess")):
        long_name = table[name.removesuffix("_excess")].attrs["long_name"]
        assert any(one.startswith(long_name) and "excess over" in one for one in words), name
    for family, lines in families.items():
        figure = report.figure(lines, [*runs])
        buttons = figure["layout"]["updatemenus"][0]["buttons"]
        assert {button["label"] for button in buttons} == {line.words for line in lines}
        steps = [frame["name"] for frame in figure["frames"]]
        assert steps in ([], ["0", "1", "8"]) or family == "tangents"
        places = [step["label"] for one in figure["layout"]["sliders"] for step in one["steps"]]
        assert places == steps
        assert all(len(frame["data"]) == len(figure["data"]) for frame in figure["frames"])


def test_bars_are_described_by_run_where_they_differ(runs):
    seeds = changed(runs["encoder"], lambda table: table.assign_attrs(seeds="seeds 0, 1"))
    lines = report.families({"decoder": runs["decoder"], "encoder": seeds})["spectrum"]
    button = report.figure(lines, ["decoder", "encoder"])["layout"]["updatemenus"][0]["buttons"][0]
    text = button["args"][1]["title"]["text"].replace("<br>", " ")
    assert re.search(r"decoder: Bars: 95 % interval, .* encoder: Bars: range of seeds\.", text)


def test_a_line_has_the_values_of_its_step_and_positions_and_bars_its_interval(runs, families):
    figure = report.figure(families["spectrum"], [*runs])
    menu, positions = figure["layout"]["updatemenus"]
    (button,) = [one for one in menu["buttons"] if one["label"] == "effective rank"]
    for side, other in zip(("all", "without_first_token"), positions["buttons"], strict=True):
        axes, visible = other["args"][0], button["args"][0]["visible"]
        places = [n for n, seen in enumerate(visible) if seen and axes["xaxis"][n] == "x"]
        assert len(places) == 2 == sum(axes["showlegend"][n] for n in places)
        for frame in figure["frames"]:
            for place, run in zip(places, runs.values(), strict=True):
                values = run.results.effective_rank.sel(step=int(frame["name"]), positions=side)
                line = frame["data"][place]
                mean, low, high = (
                    values.sel(statistic=end).astype("f4") for end in ("mean", "low", "high")
                )
                np.testing.assert_allclose(numbers(line["y"])[:-1], mean, rtol=1e-5)
                x = numbers(figure["data"][place]["x"])
                np.testing.assert_array_equal(x[:-1], values.layer)
                bars = line["error_y"]
                np.testing.assert_allclose(numbers(bars["array"])[:-1], high - mean, rtol=1e-5)
                np.testing.assert_allclose(numbers(bars["arrayminus"])[:-1], mean - low, rtol=1e-5)


def test_further_dimensions_are_pieces_of_a_line_and_what_has_no_depth_lies_over_steps(
    runs, families
):
    line = report.figure(families["outliers"], [*runs])["data"][0]
    values = runs["decoder"].results.top_coordinate_variance_share.sel(
        step=8, positions="all", statistic="mean"
    )
    chunks = numbers(line["y"]).reshape(3, -1)
    expected = values.transpose("top", "layer").values.astype("f4")
    np.testing.assert_allclose(chunks[:, :-1], expected, rtol=1e-5)
    assert np.isnan(chunks[:, -1]).all()
    assert line["text"][::4] == [f"top {top}" for top in values.top.values]
    assert len({*line["marker"]["symbol"][::4]}) == 3
    over = report.lines_of("", "", runs["decoder"].results.anisotropy_over_blocks)[0]
    assert (over.side, over.along, over.steps, over.x.tolist()) == ("all", "step", [], [0, 1, 8])


def test_the_page_holds_its_library_tangents_and_origin_and_names_do_no_harm(runs):
    page = report.page({NASTY: runs["encoder"], "decoder": runs["decoder"]}, NASTY)
    assert "<h2>tangents</h2>" in page
    library, figures = unpack(page)
    assert library.count("plotly.js v") == 1
    assert len(figures) == page.count('<div id="figure-')
    assert "enwik8, first 4,154,399 bytes" in page
    assert "<script src" not in page
    assert "alert(1)</script>" not in page


@pytest.mark.parametrize(
    ("formula", "html"),
    [
        ("(sum lambda_i)^2 <= tr C", "(Σ λ<sub>i</sub>)<sup>2</sup> ≤ tr C"),
        (
            "|X^T Y|_F^2, <q_i, k>",
            "|X<sup>T</sup> Y|<sub>F</sub><sup>2</sup>, &lt;q<sub>i</sub>, k&gt;",
        ),
        ("mean_j s_(t+1) - mean_cosine", "mean<sub>j</sub> s<sub>(t+1)</sub> - mean_cosine"),
    ],
)
def test_formulas_are_typeset_and_names_are_left_alone(formula, html):
    assert typeset(formula) == html


def test_a_table_of_ones_own_and_several_are_written_and_no_other_file_is_replaced(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 64, 4)).astype(np.float32)
    table = anisoscope.measure(
        [*x], families="similarity", nulls=(), layer_names=["first", "second"]
    )
    path = anisoscope.report(table, tmp_path / "page.html")
    assert "layer 0: first" in path.read_text()
    anisoscope.report({"a": table, "b": table}, path)
    assert "<title>a, b</title>" in path.read_text()
    anisoscope.report(table.assign_attrs(pretrained="/models/gpt2/step1"), path)
    assert "<title>gpt2/step1</title>" in path.read_text()
    (tmp_path / "mine.html").write_text("notes")
    with pytest.raises(ValueError, match="path"):
        anisoscope.report(table, tmp_path / "mine.html")
    with pytest.raises(ValueError, match="folder"):
        anisoscope.report(table, tmp_path / "none" / "page.html")
