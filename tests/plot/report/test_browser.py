"""report.html in a real browser: what it shows are the numbers of results.nc."""

import json

import numpy as np
import pytest

from anisoscope.plot.report import page
from tests.plot.report.shown import CURVES, NASTY, STEPS, choose, curves, number, same, table, tick
from tests.plot.tables import make_run

pytestmark = pytest.mark.slow


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
    for label in (NASTY, "decoder_1"):
        values = results[label].effective_rank_excess.sel(null="shuffled", statistic="mean", positions="all")
        ((_, x, y, z),) = curves(browser)[label]
        same(z, values.transpose("layer", "step"))
        assert (x, y) == ([0, 1, 2, 3], values.layer.values.tolist())
    tick(browser, "the embedding, layer 0")
    same(curves(browser)["decoder_1"][0][3], values.transpose("layer", "step")[1:])


def test_queries_and_keys_move_over_training(opened, results):
    browser = opened(quantity="query_projection", run=["decoder_0"], pick_block="[3]", step=0)
    lengths = []
    for step in STEPS:
        shown = {(one[0]["kind"], len(one[1])): one for one in curves(browser)["decoder_0"]}
        for kind, name in (("queries", "query_projection"), ("keys", "key_projection")):
            points = results["decoder_0"][name].sel(step=step, block=3)
            _, x, y, _ = shown[kind, points.sizes["vector"]]
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


def test_one_step_one_layer_one_batch(browser, tmp_path):
    tiny = make_run(steps=(0,), layers=1, heads=1, batches=1, folds=1, nulls=())
    page.write({"tiny": tiny}, {"tiny": tiny}, {"tiny": tmp_path}, tmp_path)
    browser.complaints.clear()
    browser.open((tmp_path / "report.html").as_uri())
    same(curves(browser)["tiny"][0][2], tiny.results.anisotropy.sel(statistic="mean", positions="all")[0])
    assert browser.ask("$('stepping').hidden")
    choose(browser, "view", "map step")
    assert browser.complaints == []
