"""What tests in a browser share: the runs on the page, what it shows of them, and how a reader chooses."""

import json

import numpy as np

STEPS = (0, 1, 8, 64)
NASTY = '</script><script>window.harm = 1</script><img src=x onerror="window.harm = 1">'
RUNS = {
    "decoder_0": {"seed": 0},
    "decoder_1": {"seed": 1},
    NASTY: {"causal": False, "layers": 3, "heads": 3},
}
CURVES = "Array.from(document.getElementById('plot').data).filter((one) => !one.meta.band && one.meta.run)"


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
