"""Numbers of README.md and of the pages of findings are those of the tables in findings/tables.

findings/tables/numbers.csv has a line for each phrase: the document, the phrase word for word, the
table, the row as pandas.DataFrame.query finds it, and for each number of the phrase its column, or
`max(column)` of several rows.
"""

import json
import re

import numpy as np
import pandas as pd
import pytest
import yaml

import anisoscope
from findings.claims import page_tables, profiles, verdict_tables
from findings.claims.verdicts import count
from findings.scripts import real_models
from findings.scripts.shared_tables import RESULTS
from tests.program import ROOT

PHRASES = pd.read_csv(RESULTS / "numbers.csv")
NUMBER = re.compile(r"(?<!\w)[−-]?\d[\d,]*(?:\.\d+)?(?!\w)")
SIZE = r" million| to 13 billion"  # of models: no result
DECIMAL = re.compile(rf"(?<![\w.])[−-]?\d+\.\d+(?![\w.]*\d|{SIZE})")
SECTIONS = {
    "README.md": ("## What it found", "## When to use something else"),
}


def read(document: str) -> str:
    return " ".join((ROOT / document).read_text().split())


def look_up(phrase: pd.Series) -> list[float]:
    rows = pd.read_csv(RESULTS / phrase["file"]).query(phrase["row"])
    values = []
    for column in phrase["values"].split():
        reduced = re.fullmatch(r"(min|max|mean|count)\((\w+)\)", column)
        if not reduced:
            assert len(rows) == 1, f"{phrase['phrase']!r}: {len(rows)} rows are {phrase['row']}"
        found = rows[reduced[2]].agg(reduced[1]) if reduced else rows.eval(column, engine="python")
        values.append(float(np.ravel(found)[0]))
    return values


def disagreements(phrase: pd.Series) -> list[str]:
    """Numbers of the phrase that are not the table's, rounded to the digits shown."""
    shown = [x.replace("−", "-").replace(",", "") for x in NUMBER.findall(phrase["phrase"])]
    values = look_up(phrase)
    assert len(shown) == len(values), f"{phrase['phrase']!r}: {len(values)} columns are named"
    bounds = [0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9 for number in shown]
    return [
        f"{number} is {value:.6g}"
        for number, value, bound in zip(shown, values, bounds, strict=True)
        if not abs(float(number) - value) <= bound
    ]


def test_numbers_are_those_of_the_tables():
    for _, phrase in PHRASES.iterrows():
        assert read(phrase["document"]).count(phrase["phrase"]) == 1, phrase["phrase"]
        assert disagreements(phrase) == [], phrase["phrase"]


def test_a_changed_digit_is_found():
    phrase = PHRASES.iloc[0]
    number = DECIMAL.search(phrase["phrase"])[0]
    changed = phrase["phrase"].replace(number, number[:-1] + str((int(number[-1]) + 1) % 10))
    assert len(disagreements(phrase.replace(phrase["phrase"], changed))) == 1


@pytest.mark.parametrize("document", SECTIONS)
def test_no_decimal_is_left_out(document):
    text = read(document)
    first, last = (text.index(mark) if mark else len(text) for mark in SECTIONS[document])
    checked = set()
    for phrase in PHRASES[PHRASES["document"] == document]["phrase"]:
        checked |= {*range(text.index(phrase), text.index(phrase) + len(phrase))}
    left = [
        number for number in DECIMAL.finditer(text, first, last) if number.start() not in checked
    ]
    assert [text[number.start() - 30 : number.end() + 10] for number in left] == []


def test_verdicts_are_those_of_the_tables_beside_them():
    found = verdict_tables.judge_all()
    kept = pd.read_csv(RESULTS / "verdicts.csv", keep_default_na=False, na_values=[""])
    for name in ("experiment", "claim", "model", "role", "test", "verdict"):
        assert found[name].tolist() == kept[name].tolist(), name
    assert found["reason"].tolist() == kept["reason"].fillna("").tolist()
    for name in ("effect", "low", "high", "smallest", "p", "p_holm", "p_project"):
        assert found[name].to_numpy() == pytest.approx(kept[name].to_numpy(), nan_ok=True), name
    counts = pd.read_csv(RESULTS / "counts.csv", index_col="group")
    pd.testing.assert_frame_equal(count(found), counts, check_names=False)


def test_tables_of_verdicts_in_pages_are_those_of_the_verdicts():
    tables, filled = page_tables.read_tables(), 0
    for path in sorted((ROOT / "findings").glob("*.md")):
        text = path.read_text()
        assert page_tables.fill(text, *tables) == text, path
        filled += len(page_tables.MARK.findall(text))
    assert filled == 10  # seven papers, counts, bells, bells of three texts


@pytest.mark.parametrize("path", sorted((ROOT / "findings").glob("*.md")), ids=lambda x: x.stem)
def test_a_page_is_short_and_has_its_parts(path):
    text = path.read_text()
    words = re.sub(r"```.*?```|\]\([^)]*\)", "", text, flags=re.DOTALL)
    assert len(re.findall(r"[^\s|]*\w[^\s|]*", words)) <= 600
    if path.name not in ("README.md", "rules.md", "reproduce.md"):
        figure = path.name == "counts.md" or "](figures/" in text
        assert [figure, "\n**" in text, "\n| " in text, "```sh" in text, "**Limits.**" in text] == [
            True
        ] * 5


@pytest.mark.parametrize("name", ["bells", "evidence"])
def test_tables_of_pretrained_models_are_what_dev_makes_of_those_beside_them(name):
    folder = real_models.RESULTS / "real_models"
    if name == "bells":
        layers = pd.concat([pd.read_csv(real_models.TABLE), real_models.ours()])
        made = real_models.bells(layers)
    else:
        made = profiles.read_models()
    kept = pd.read_csv(folder / f"{name}.csv")
    for column in made.columns.intersection(kept.columns):
        if kept[column].dtype.kind == "f":
            assert made[column].replace("", float("nan")).to_numpy(float) == pytest.approx(
                kept[column].to_numpy(), nan_ok=True
            )
        else:
            assert made[column].tolist() == kept[column].fillna("").tolist()


def test_one_version_everywhere():
    """In files that those who index the package read."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (
        cited["version"]
        == json.loads((ROOT / "codemeta.json").read_text())["version"]
        == anisoscope.__version__
    )
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] in (anisoscope.__version__, "Unreleased")
    assert {paper["year"] for paper in cited["references"]} == {2024, 2026}
