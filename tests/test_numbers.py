"""Every number that a document gives as a result is recomputed from the tables in docs/results."""

import re
import tomllib
from typing import Any

import pandas as pd
import pytest
import xarray as xr

import anisoscope
from anisoscope.analysis.shapes import shapes
from tests import numbers
from tests.numbers import ABOUT, RESULTS
from tests.program import ROOT

LIST = tomllib.loads((RESULTS / "numbers.toml").read_text())
PARTS = ("unchecked", "logged", "tables")
ENTRIES = [(name, one) for name, entries in LIST.items() if name not in PARTS for one in entries]
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?![\w,]*-LN)")
DECIMAL = re.compile(r"(?<![\w.])[−-]?\d+\.\d+(?![\w.]*\d)")
FROM = {
    "README.md": ("## Three papers", "## Train and measure"),
    "docs/findings/pretrained.md": ("## The positive control", ""),
    "docs/findings/families.md": ("# What the further", "## Commands"),
    "docs/findings/index.md": ("# Findings", "The ablation suites in full"),
    "docs/findings/ablations.md": ("## Trained enc", "## Untrained"),
    "docs/explanation/subspaces.md": ("# Activation subspaces", ""),
    "docs/reference/speed.md": ("## A training step", ""),
}
LOG = {one.partition("\n")[0]: one for one in (ROOT / "dev" / "LOG.md").read_text().split("\n## ")}


def flat(text: str) -> str:
    """Lines may break anywhere."""
    return " ".join(text.split())


def shown(text: str) -> list[str]:
    return [number.replace("−", "-").replace(",", "").rstrip(",") for number in NUMBER.findall(text)]


def agrees(number: str, value: float) -> bool:
    """To the last digit that is shown."""
    digits = len(number.partition(".")[2])
    return abs(float(number) - float(value)) <= 0.5 * 10.0**-digits + 1e-9


def check(document: str, text: str, values: list[str]) -> None:
    assert flat(text) in flat((ROOT / document).read_text()), f"{document} does not say {text!r}"
    digits = shown(text)
    assert len(digits) == len(values), f"{text!r} has {len(digits)} numbers and {len(values)} values"
    for number, expression in zip(digits, values, strict=True):
        value = eval(expression, dict(vars(numbers)))
        assert agrees(number, value), f"{document}: {number} in {text!r} is {value:.6g} by {expression}"


def rows_below(text: str, header: str) -> list[str]:
    """The rows of the Markdown table whose head begins so."""
    lines = text[text.index(header) :].splitlines()[2:]
    return [line for line in lines[: [*map(str.strip, lines), ""].index("")] if line.startswith("|")]


def check_table(text: str, entry: dict[str, Any]) -> None:
    """The first `keys` cells of a row name the row of the frame; its numbers are the others, in order."""
    frame = eval(entry["frame"], dict(vars(numbers)))
    for line in rows_below(text, entry["header"]):
        cells = [cell.strip().replace(",", "") for cell in line.strip("|").split("|")]
        key, digits = " ".join(cells[: entry["keys"]]), shown(" ".join(cells[entry["keys"] :]))
        values = frame.loc[key].tolist()
        assert len(digits) == len(values), line
        assert all(map(agrees, digits, values)), f"{line} is {values}"


def part(text: str, entry: dict[str, Any]) -> tuple[int, int]:
    start = text.index(flat(entry["from"]))
    return start, text.index(flat(entry["to"]), start) if entry["to"] else len(text)


def check_logged(text: str, entry: dict[str, Any]) -> None:
    """Every decimal of the part stands in one of these entries of the log, as it is written there."""
    start, end = part(flat(text), entry)
    found = [one for title, one in LOG.items() for name in entry["entries"] if title.startswith(name)]
    assert len(found) == len(entry["entries"]), entry["entries"]
    written = {number for one in found for number in DECIMAL.findall(one)}
    assert {*DECIMAL.findall(flat(text)[start:end])} - written == set(), entry["from"]


def test_every_number_of_the_list_is_what_the_tables_have():
    for document, entry in ENTRIES:
        check(document, entry["text"], entry["values"])
    for entry in LIST["tables"]:
        check_table((ROOT / entry["in"]).read_text(), entry)
    for entry in LIST["logged"]:
        check_logged((ROOT / entry["in"]).read_text(), entry)


def test_the_verdicts_are_those_of_the_tables_beside_them():
    found = anisoscope.verdicts(RESULTS / name for name in ABOUT["folders"])
    kept = pd.read_csv(RESULTS / "verdicts.csv", keep_default_na=False, na_values={"p_project": [""], "p": [""]})
    for name in ("experiment", "claim", "model", "verdict", "reason"):
        assert found[name].tolist() == kept[name].tolist(), name
    for name in ("effect", "low", "high", "p_project"):
        assert found[name].to_numpy() == pytest.approx(pd.to_numeric(kept[name]).to_numpy(), nan_ok=True), name


@pytest.mark.parametrize("name", ["tiny", "together", "found"])
def test_bells_of_the_sink_search_are_those_of_its_layers(name):
    for _, row in pd.read_csv(RESULTS / "sink_search" / f"{name}.csv").iterrows():
        layers = row[[column for column in row.index if re.fullmatch(r"anisotropy_\d+", column)]].dropna()
        layers = layers.astype(float)[[f"anisotropy_{i}" for i in range(len(layers))]].to_numpy()
        table = xr.Dataset(
            {"anisotropy": (("statistic", "step", "positions", "layer"), layers[None, None, None])},
            {"statistic": ["mean"], "step": [1], "positions": ["all"]},
        )
        for shape in ("bell_blocks", "bell_whole"):
            assert row[shape] == pytest.approx(shapes(table)[shape].item()), row["run"]


def test_a_changed_digit_is_found():
    document, entry = ENTRIES[2]
    number = shown(entry["text"])[0]
    value = eval(entry["values"][0], dict(vars(numbers)))
    assert agrees(number, value)
    assert not agrees(number[:-1] + str((int(number[-1]) + 1) % 10), value)
    with pytest.raises(AssertionError, match="does not say"):
        check(document, entry["text"].replace("079", "078"), entry["values"])
    for asked, entries in ((check_table, LIST["tables"]), (check_logged, LIST["logged"])):
        for entry in entries:
            text = (ROOT / entry["in"]).read_text()
            text = text if "header" in entry else flat(text)
            start = text.index(rows_below(text, entry["header"])[0]) if "header" in entry else part(text, entry)[0]
            found = DECIMAL.search(text, start)
            at, quiet = found.end() - 1, 0
            for digit in {*"0123456789"} - {found.group()[-1]}:
                try:
                    asked(text[:at] + digit + text[at + 1 :], entry)
                    quiet += 1  # the log may have that number too
                except AssertionError:
                    pass
            assert quiet <= (5 if asked is check_logged else 0), entry


@pytest.mark.parametrize("document", FROM)
def test_no_decimal_of_a_result_is_out_of_the_list(document):
    """Each lies in a text of the list, or in a part for which the list names the command that makes its table."""
    text = flat((ROOT / document).read_text())
    begin, end = (text.index(mark) if mark else len(text) for mark in FROM[document])
    told = set()
    spans = [flat(entry["text"]) for name, entry in ENTRIES if name == document]
    for span in spans:
        places = [found.start() for found in re.finditer(re.escape(span), text)]
        told |= {at for place in places for at in range(place, place + len(span))}
    for entry in (one for one in (*LIST["unchecked"], *LIST["logged"]) if one["in"] == document):
        told |= {*range(*part(text, entry))}
    for entry in (one for one in LIST["tables"] if one["in"] == document):
        for line in rows_below((ROOT / document).read_text(), entry["header"]):
            told |= {*range(text.index(flat(line)), text.index(flat(line)) + len(flat(line)))}
    left = [found for found in DECIMAL.finditer(text, begin, end) if found.start() not in told]
    assert [text[max(one.start() - 40, 0) : one.end() + 20] for one in left] == []
