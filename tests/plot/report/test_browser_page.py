"""report.html in a real browser, as a page: it needs nothing but itself, a phone or keys do, its view is kept."""

import xml.etree.ElementTree

import pytest

from tests.plot.report.shown import choose, curves, tick

pytestmark = pytest.mark.slow


def test_a_fetch_and_an_error_would_be_noticed(browser, tmp_path):
    (tmp_path / "page.html").write_text('<body><img src="http://127.0.0.1:9/x.png"><script>nothing()</script></body>')
    browser.call("Page.navigate", url=(tmp_path / "page.html").as_uri())
    browser.wait("document.readyState === 'complete'")
    assert "http://127.0.0.1:9/x.png" in browser.requests
    assert any("nothing is not defined" in complaint for complaint in browser.complaints)


def test_what_is_shown_is_saved_as_svg_with_its_title_and_origin(opened, tmp_path):
    browser = opened(quantity="anisotropy", step=64)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.ask("$('save').click()")
    saved = tmp_path / "made_anisotropy_over_layer_step_64.svg"
    for _ in range(200):
        if saved.exists():
            break
        browser.ask("new Promise((done) => setTimeout(done, 50))")
    drawing = xml.etree.ElementTree.parse(saved).getroot()
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
    controls = "quantity view positions null bands nulls embedding checkbox button save"
    assert set(controls.split()) <= reached
