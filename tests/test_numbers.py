"""Every number that a document gives as a result is recomputed from the tables in docs/results."""

import math
import re
import tomllib

import pandas as pd
import pytest
import xarray as xr

import anisoscope
from anisoscope.analysis.shapes import shapes
from tests.program import ROOT

RESULTS = ROOT / "docs" / "results"
ABOUT = tomllib.loads((RESULTS / "experiments.toml").read_text())
LIST = tomllib.loads((RESULTS / "numbers.toml").read_text())
ENTRIES = [(name, one) for name, entries in LIST.items() if name != "unchecked" for one in entries]
NUMBER = re.compile(r"[−-]?\d[\d,]*(?:\.\d+)?(?![\w,]*-LN)")
DECIMAL = re.compile(r"(?<![\w.])[−-]?\d+\.\d+(?![\w.]*\d)")
FROM = {
    "README.md": ("## Three papers", "## Train and measure"),
    "docs/findings/pretrained.md": ("## The positive control", "```sh"),
    "docs/findings/families.md": ("# What the further", "## Commands"),
    "docs/findings/index.md": ("# Findings", "The ablation suites in full"),
    "docs/findings/ablations.md": ("## Trained enc", "## Untrained"),
}
UNIFORM = math.log(512)  # nat, attention alike on 512 keys
SINKLESS = ("softmax_one", "sigmoid", "sink")


def table(path: str) -> pd.DataFrame:
    """Text may be empty, "None" is a setting, and only an empty field is a missing number."""
    rows = pd.read_csv(RESULTS / path, keep_default_na=False, dtype=str)
    texts = ("setting", "before", "after", "held", "quantity", "positions", "without", "role", "run", "why_not")
    return rows.apply(lambda column: column if column.name in texts else pd.to_numeric(column))


def one(rows: pd.DataFrame, **where) -> pd.Series:
    for name, value in where.items():
        rows = rows[rows[name] == value]
    assert len(rows) == 1, f"{len(rows)} rows have {where}"
    return rows.iloc[0]


def contrast(path: str, quantity: str, before: str, after: str, held: str | None = None) -> pd.Series:
    """`before` may be left empty where `after` tells it; the condition that comes first there is the plain one."""
    where = {"quantity": quantity, "positions": "all", "after": after} | ({"before": before} if before else {})
    rows = table(path)
    if not before:
        rows = rows[~rows["before"].str.contains("penalty -?1$")]
    return one(rows, **where | ({} if held is None else {"held": held}))


def matched(suite: str, *about: str) -> pd.Series:
    return contrast(f"{suite}/contrasts_loss_matched.csv", *about)


def last(suite: str, *about: str) -> pd.Series:
    return contrast(f"{suite}/contrasts.csv", *about)


def matched_all(suite: str, quantity: str, names: tuple[str, ...]) -> list[pd.Series]:
    """Of the plain decoder to each of these."""
    rows = table(f"{suite}/contrasts_loss_matched.csv")
    rows = rows[(rows["quantity"] == quantity) & (rows["positions"] == "all") & rows["after"].isin(names)]
    return [row for _, row in rows[rows["before"].isin(("softmax", "no sink"))].iterrows()]


def levels(suite: str) -> pd.Series:
    """Of the primary contrasts."""
    rows = table(f"{suite}/contrasts_loss_matched.csv")
    return rows[rows["role"] == "primary"]["level"]


def primary(suite: str, name: str) -> pd.Series:
    return one(pd.read_csv(RESULTS / suite / "primary.csv"), name=name)


def runs(suite: str, condition: str) -> pd.DataFrame:
    rows = pd.read_csv(RESULTS / suite / "runs.csv")
    return rows[rows["condition"] == condition]


def each(suite: str, before: str, after: str, condition: str) -> pd.DataFrame:
    rows = table(f"{suite}/loss_matched.csv")
    rows = rows[(rows["before"] == before) & (rows["after"] == after) & rows["run"].str.match(rf"{condition}_\d+$")]
    return rows[["steps_to_context_gain", "growth", "last_anisotropy"]].astype(float)


def sink(name: str, run: str) -> pd.Series:
    return one(pd.read_csv(RESULTS / "sink_search" / f"{name}.csv"), run=run)


def verdict(experiment: str, claim: str, model: str) -> pd.Series:
    return one(pd.read_csv(RESULTS / "verdicts.csv"), experiment=experiment, claim=claim, model=model)


def verdicts_of(paper: str) -> pd.DataFrame:
    rows = pd.read_csv(RESULTS / "verdicts.csv")
    return rows[rows["paper"] == paper]


def real(model: str, positions: str = "all") -> pd.Series:
    """Anisotropy of a pretrained model by layer."""
    rows = pd.read_csv(RESULTS / "real_models" / "layers.csv").query("model == @model and positions == @positions")
    return rows.set_index("layer")["mean"]


def further(
    model: str, quantity: str, at: str | None = None, positions: str = "all", column: str = "mean"
) -> pd.Series:
    """A quantity of a further family by layer, at the last step."""
    rows = pd.read_csv(RESULTS / "families" / "layers.csv", dtype={"at": str})
    rows = rows.query("model == @model and quantity == @quantity and positions == @positions")
    rows = rows[rows["step"] == rows["step"].max()]
    return (rows if at is None else rows[rows["at"] == at]).set_index("layer")[column]


def beside_loss(quantity: str, column: str, level: str = "token") -> pd.Series:
    """By layer, of families/loss.csv."""
    rows = pd.read_csv(RESULTS / "families" / "loss.csv").query("quantity == @quantity and level == @level")
    return rows.set_index("layer")[column]


def alike(layer: int, quantity: str = "cka_unbiased", permuted: str = "windows") -> pd.Series:
    """A row of calibrated.csv: two untrained networks."""
    rows = pd.read_csv(RESULTS / "families" / "calibrated.csv")
    return one(rows, layer=layer, quantity=quantity, permuted=permuted)


def once_all() -> pd.DataFrame:
    """Verdicts on claims, each run counted once."""
    rows = pd.read_csv(RESULTS / "verdicts.csv").query("paper != 'primary contrast'").set_index("claim")
    return rows[[[*place] not in ABOUT["again"] for place in zip(rows["experiment"], rows["model"], strict=True)]]


def effects(claim: str, word: str) -> pd.Series:
    rows = once_all().loc[[claim]]
    return rows[rows["verdict"] == word]["effect"] if word else rows["effect"]


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
    numbers = shown(text)
    assert len(numbers) == len(values), f"{text!r} has {len(numbers)} numbers and {len(values)} values"
    for number, expression in zip(numbers, values, strict=True):
        value = eval(expression, dict(globals()))
        assert agrees(number, value), f"{document}: {number} in {text!r} is {value:.6g} by {expression}"


def test_every_number_of_the_list_is_what_the_tables_have():
    for document, entry in ENTRIES:
        check(document, entry["text"], entry["values"])


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
    value = eval(entry["values"][0], dict(globals()))
    assert agrees(number, value)
    assert not agrees(number[:-1] + str((int(number[-1]) + 1) % 10), value)
    with pytest.raises(AssertionError, match="does not say"):
        check(document, entry["text"].replace("079", "078"), entry["values"])


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
    for part in (part for part in LIST["unchecked"] if part["in"] == document):
        start = text.index(flat(part["from"]))
        told |= {*range(start, text.index(flat(part["to"]), start))}
    left = [found for found in DECIMAL.finditer(text, begin, end) if found.start() not in told]
    assert [text[max(one.start() - 40, 0) : one.end() + 20] for one in left] == []
