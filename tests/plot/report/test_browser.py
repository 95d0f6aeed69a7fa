"""report.html in a real browser: what it shows are the numbers of results.nc, and it needs nothing but itself."""

import json
import os
import urllib.parse
import xml.etree.ElementTree

import numpy as np
import pytest

from anisoscope.cli import drawing
from anisoscope.measurement.tables import files
from anisoscope.plot.report import page
from anisoscope.plot.seeds import over_seeds
from tests.plot.report.browser import Browser, find
from tests.plot.tables import make_run

STEPS = (0, 1, 8, 64)
NASTY = '</script><script>window.harm = 1</script><img src=x onerror="window.harm = 1">'
RUNS = {
    "decoder_0": {"seed": 0},
    "decoder_1": {"seed": 1},
    NASTY: {"causal": False, "layers": 3, "heads": 3},
}
CURVES = "Array.from(document.getElementById('plot').data).filter((one) => !one.meta.band && one.meta.run)"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if (binary := find()) is None:
        if "ANISOSCOPE_NEEDS_BROWSER" in os.environ:
            pytest.fail("there is no Chromium, and ANISOSCOPE_NEEDS_BROWSER is set")
        pytest.skip("there is no Chromium: sh tests/plot/report/chromium.sh says how to get one")
    opened = Browser(binary, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "made"
    folders = {label: root / f"run_{number}" for number, label in enumerate(RUNS)}
    for label, about in RUNS.items():
        run = make_run(**{"steps": STEPS, "layers": 4, "heads": 2, "batches": 2} | about)
        files.write(run.results, folders[label] / "results.nc")
        (folders[label] / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.log))
    runs = {label: drawing.load(path) for label, path in folders.items()}
    page.write(runs, over_seeds(runs), folders, root)
    return root


@pytest.fixture
def opened(browser, root):
    """Opens the page with these words in its address; afterwards nothing was fetched and nobody complained."""
    browser.requests.clear()
    browser.complaints.clear()
    address = (root / "report.html").as_uri()

    def open_at(**words):
        browser.open(f"{address}#{urllib.parse.urlencode(words, doseq=True)}")
        return browser

    yield open_at
    browser.ask("new Promise((done) => setTimeout(done, 100))")
    loaded = {request.partition("#")[0] for request in browser.requests if not request.startswith(("data:", "blob:"))}
    assert loaded <= {address, "about:blank"}
    assert browser.complaints == []
    assert browser.ask("window.harm") is None


@pytest.fixture(scope="module")
def results(root):
    return {label: files.read_table(root / f"run_{number}" / "results.nc") for number, label in enumerate(RUNS)}


def curves(browser):
    """What Plotly has been given: run -> its curves, each with its meta and numbers."""
    found = {}
    for one in json.loads(browser.ask(f"JSON.stringify({CURVES}.map(({{ meta, x, y, z }}) => [meta, x, y, z]))")):
        found.setdefault(one[0]["run"], []).append(one)
    return found


def same(shown, values):
    """JSON has no NaN, and doubles hold any float32."""
    shown = np.array(shown, dtype=object)
    shown = np.where(shown == None, np.nan, shown).astype(np.float64)  # noqa: E711
    np.testing.assert_array_equal(shown, np.asarray(values, np.float32).astype(np.float64))


def choose(browser, name, value):
    browser.ask(f"$('{name}').value = {json.dumps(value)}; $('{name}').dispatchEvent(new Event('change'))")


def tick(browser, words):
    found = f"[...document.querySelectorAll('label')].find((one) => one.textContent.trim() === {json.dumps(words)})"
    browser.ask(f"{found}.querySelector('input').click()")


def table(browser):
    browser.ask("$('numbers').open = true; render()")
    rows = "[...$('numbers').querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    return browser.ask(rows)


def number(text):
    return float(text.replace("−", "-").replace("∞", "inf").replace("–", "nan"))


def test_a_fetch_and_an_error_would_be_noticed(browser, tmp_path):
    (tmp_path / "page.html").write_text('<body><img src="http://127.0.0.1:9/x.png"><script>nothing()</script></body>')
    browser.call("Page.navigate", url=(tmp_path / "page.html").as_uri())
    browser.wait("document.readyState === 'complete'")
    assert "http://127.0.0.1:9/x.png" in browser.requests
    assert any("nothing is not defined" in complaint for complaint in browser.complaints)


def test_the_slider_moves_the_curve_by_keyboard_and_the_numbers_are_those_of_the_table(opened, results):
    browser = opened(quantity="anisotropy", run=["decoder_0", NASTY])
    seen = []
    browser.ask("$('step').focus()")
    for step in reversed(STEPS):
        shown = curves(browser)
        assert browser.ask("$('step_said').textContent") == f"{step:,}"
        assert browser.ask("$('step').getAttribute('aria-valuetext')") == f"step {step:,}"
        rows = {(row[0], row[1]): [number(cell) for cell in row[2:]] for row in table(browser)}
        for label in ("decoder_0", NASTY):
            values = results[label].anisotropy.sel(positions="all", step=step)
            same(shown[label][0][2], values.sel(statistic="mean"))
            for layer in values.layer.values:
                place = f"layer {layer}{'' if layer else ' (embedding)'}, step {step}"
                expected = values.sel(layer=layer, statistic=["mean", "low", "high"])
                np.testing.assert_allclose(rows.pop((label, place)), expected, rtol=5e-6)
        assert rows == {}
        seen.append(shown["decoder_0"][0][2])
        browser.press("ArrowLeft")
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i])


def test_over_training_with_a_choice_of_layers_and_heads_and_without_token_0(opened, results):
    browser = opened(quantity="query_drift", view="over step", run=[NASTY])
    assert [one[0]["block"] for one in curves(browser)[NASTY]] == [1, 2, 3]
    browser.ask("document.querySelectorAll('[data-dim=block]')[1].click()")
    browser.ask("document.querySelectorAll('[data-dim=head]')[2].click()")
    choose(browser, "positions", "without_first")
    shown = curves(browser)[NASTY]
    assert [(one[0]["block"], one[0]["head"]) for one in shown] == [(1, 0), (1, 2), (3, 0), (3, 2)]
    values = results[NASTY].query_drift.sel(positions="without_first", statistic="mean")
    for meta, x, y, _ in shown:
        same(y, values.sel(block=meta["block"], head=meta["head"]))
        np.testing.assert_allclose(x, np.log10(1 + np.array(STEPS)))
    assert "without" in browser.ask("$('title').textContent")


def test_null_models_and_the_excess_over_them(opened, results):
    browser = opened(quantity="twonn", run=["decoder_0"], step=8, nulls=1)
    means = results["decoder_0"].twonn.sel(positions="all", step=8, statistic="mean").astype(np.float32)
    excess = results["decoder_0"].twonn_excess.sel(positions="all", step=8).astype(np.float32)
    shown = {one[0]["model"]: one[2] for one in curves(browser)["decoder_0"]}
    assert list(shown) == ["", "gaussian", "shuffled", "untrained"]
    for null in ("gaussian", "shuffled", "untrained"):
        np.testing.assert_allclose(shown[null], means - excess.sel(null=null, statistic="mean"), rtol=1e-6)
    choose(browser, "null", "gaussian")
    same(curves(browser)["decoder_0"][0][2], excess.sel(null="gaussian", statistic="mean"))
    bands = json.loads(browser.ask("JSON.stringify($('plot').data.filter((one) => one.meta.band).map((one) => one.y))"))
    low, high = (excess.sel(null="gaussian", statistic=end) for end in ("low", "high"))
    same(bands[0][:-1], [*low, *high[::-1]])
    assert bands[0][-1] is None
    tick(browser, "intervals")
    assert browser.ask("$('plot').data.filter((one) => one.meta.band).length") == 0


def test_runs_and_seeds_are_switched_on_and_off(opened, results):
    browser = opened(quantity="anisotropy", step=64)
    assert list(curves(browser)) == ["decoder, 2 seeds together", NASTY]
    both = [results[f"decoder_{seed}"].anisotropy.sel(statistic="mean", positions="all", step=64) for seed in (0, 1)]
    shown = curves(browser)["decoder, 2 seeds together"]
    np.testing.assert_allclose(shown[0][2], sum(both) / 2, rtol=1e-6)
    for words in ("decoder, 2 seeds together", "decoder_1", NASTY):
        tick(browser, words)
    assert list(curves(browser)) == ["decoder_1"]
    same(curves(browser)["decoder_1"][0][2], both[1])
    tick(browser, "decoder_1")
    assert curves(browser) == {}
    assert browser.ask("$('notes').textContent") == "No run is switched on."


def test_of_single_heads_the_single_seeds_are_shown(opened):
    browser = opened(quantity="query_drift")
    assert list(curves(browser)) == ["decoder_0", "decoder_1", NASTY]
    assert "not averaged for single heads" in browser.ask("$('notes').textContent")


def test_the_profile_is_a_heat_map_of_layers_and_steps(opened, results):
    browser = opened(quantity="effective_rank", view="map step", run=["decoder_1", NASTY], null="shuffled")
    for label in ("decoder_1", NASTY):
        values = results[label].effective_rank_excess.sel(null="shuffled", statistic="mean", positions="all")
        ((_, x, y, z),) = curves(browser)[label]
        same(z, values.transpose("layer", "step"))
        assert (x, y) == ([0, 1, 2, 3], values.layer.values.tolist())
    tick(browser, "the embedding, layer 0")
    ((_, _, _, z),) = curves(browser)["decoder_1"]
    same(z, results["decoder_1"].effective_rank_excess.sel(null="shuffled", statistic="mean", positions="all").T[1:])


def test_queries_and_keys_move_over_training(opened, results):
    browser = opened(quantity="query_projection", run=["decoder_0"], pick_block="[3]", step=0)
    lengths = []
    for step in STEPS:
        shown = {(one[0]["kind"], len(one[1])): one for one in curves(browser)["decoder_0"]}
        for kind, name in (("queries", "query_projection"), ("keys", "key_projection")):
            points = results["decoder_0"][name].sel(step=step, block=3)
            _, x, y, _ = next(
                one for (of, count), one in shown.items() if of == kind and count == points.sizes["vector"]
            )
            same([x, y], points.T)
        ways = f"{CURVES}.filter((one) => one.mode === 'lines').map((one) => one.x.length)"
        lengths.append(browser.ask(ways))
        browser.ask("$('step').focus()")
        browser.press("ArrowRight")
    assert lengths == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_a_point_under_the_mouse_says_value_interval_formula_and_source(opened, results):
    browser = opened(quantity="anisotropy", run=["decoder_0"], step=64)
    values = results["decoder_0"].anisotropy.sel(positions="all", step=64, layer=2)
    place = browser.ask(
        "(() => { const [box, { xaxis, yaxis }] = [$('plot').getBoundingClientRect(), $('plot')._fullLayout];"
        f"const [x, y] = [xaxis.l2p(2), yaxis.l2p({float(values.sel(statistic='mean'))})];"
        "return [box.x + xaxis._offset + x, box.y + yaxis._offset + y]; })()"
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    browser.wait("document.querySelector('.hoverlayer')?.textContent.includes('layer 2')")
    said = browser.ask("document.querySelector('.hoverlayer').textContent")
    for statistic in ("mean", "low", "high"):
        assert f"{float(np.float32(values.sel(statistic=statistic))):.4g}" in said
    for words in ("decoder_0", "step 64", "max(lambda) / sum(lambda)", "Razzhigaev et al. 2024"):
        assert words in said


def test_what_is_shown_is_saved_as_svg_with_its_title_and_origin(opened, tmp_path):
    browser = opened(quantity="anisotropy", step=64)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.ask("$('save').click()")
    browser.wait("true")
    for _ in range(200):
        if found := [path for path in tmp_path.iterdir() if path.suffix == ".svg"]:
            break
        browser.ask("new Promise((done) => setTimeout(done, 50))")
    assert [path.name for path in found] == ["made_anisotropy_over_layer_step_64.svg"]
    drawing = xml.etree.ElementTree.parse(found[0]).getroot()
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(text.strip() for text in drawing.itertext())
    assert "Anisotropy over layers, step 64, all positions" in words
    assert "enwik8, first 4,154,399 bytes" in words
    assert len(list(drawing.iter("{http://www.w3.org/2000/svg}path"))) > 10


def test_the_address_keeps_what_is_shown(opened):
    browser = opened()
    choose(browser, "quantity", "gride")
    choose(browser, "view", "over neighbours")
    tick(browser, "2")
    address, title = browser.ask("location.href"), browser.ask("$('title').textContent")
    before = curves(browser)
    browser.open(address)
    assert browser.ask("$('title').textContent") == title
    assert curves(browser) == before


def test_every_quantity_is_drawn_in_every_view(opened):
    browser = opened(nulls=1)
    count = browser.ask(
        "(() => { let count = 0; for (const quantity of known.quantities) for (const { key } of views(quantity)) {"
        "change(() => Object.assign(state, { quantity: quantity.name, view: key }));"
        "if (selection.view.key !== key || !$('plot').data.length) throw Error(`${quantity.name} ${key}`); count++; }"
        "return count; })()"
    )
    assert count > 100


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_needs_no_scrolling_sideways_and_colours_follow_the_system(opened, dark):
    browser = opened()
    try:
        browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.call("Emulation.setEmulatedMedia", features=[scheme])
        browser.wait("$('plot').layout.width < 390")
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        paper = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
        browser.wait(f"$('plot').layout.paper_bgcolor === '{'#14171a' if dark else '#ffffff'}'")
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")
        browser.call("Emulation.setEmulatedMedia", features=[])


def test_every_control_has_a_name_and_is_reached_by_the_tabulator(opened):
    browser = opened(quantity="coordinate_share", view="over layer")
    unnamed = (
        "[...document.querySelectorAll('main input, main select, main button')]"
        ".filter((one) => !(one.labels?.length || one.textContent.trim())).length"
    )
    assert browser.ask(unnamed) == 0
    browser.ask("$('quantity').focus()")
    reached = set()
    for _ in range(40):
        reached.add(browser.ask("document.activeElement.id || document.activeElement.type"))
        browser.press("Tab")
    assert {
        "quantity",
        "view",
        "positions",
        "null",
        "bands",
        "nulls",
        "embedding",
        "checkbox",
        "button",
        "save",
    } <= reached


def test_one_step_one_layer_one_batch(browser, tmp_path):
    tiny = make_run(steps=(0,), layers=1, heads=1, batches=1, folds=1, nulls=())
    page.write({"tiny": tiny}, {"tiny": tiny}, {"tiny": tmp_path}, tmp_path)
    browser.complaints.clear()
    browser.open((tmp_path / "report.html").as_uri())
    same(curves(browser)["tiny"][0][2], tiny.results.anisotropy.sel(statistic="mean", positions="all")[0])
    assert browser.ask("$('stepping').hidden")
    choose(browser, "view", "map step")
    assert browser.complaints == []
