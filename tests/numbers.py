"""What the tables of docs/results say, for the expressions of docs/results/numbers.toml."""

import math
import tomllib

import pandas as pd

from tests.program import ROOT

RESULTS = ROOT / "docs" / "results"
ABOUT = tomllib.loads((RESULTS / "experiments.toml").read_text())
UNIFORM = math.log(512)  # nat, attention alike on 512 keys
CLAMPS = ("none 0", "1200 token 0 and a few more after block 30", "600 20", "200 716")  # and how many vectors are cut
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


def real_sides(model: str) -> pd.DataFrame:
    """Anisotropy by layer with its interval, of all positions and without the first."""
    rows = pd.read_csv(RESULTS / "real_models" / "layers.csv").query("model == @model")
    sides = [rows[rows["positions"] == side].set_index("layer") for side in ("all", "without_first")]
    frame = pd.concat([side[["mean", "low", "high"]] for side in sides], axis=1)
    return frame.set_index(frame.index.astype(str))


def by_window(column: str) -> pd.Series:
    return pd.read_csv(RESULTS / "real_models" / "bell_by_window.csv")[column]


def each_window() -> pd.DataFrame:
    """All columns of that table by window and layer."""
    rows = pd.read_csv(RESULTS / "real_models" / "bell_by_window.csv", dtype={"window": str, "layer": str})
    return rows.set_index(rows.pop("window") + " " + rows.pop("layer"))


def bits_per_byte(model: str) -> float:
    rows = pd.read_csv(RESULTS / "real_models" / "layers.csv").query("model == @model")
    return float(rows["bits_per_byte"].iloc[0])


def clamped(most: float) -> pd.DataFrame:
    """Of a clamp, by layer; infinite: as the model is."""
    return pd.read_csv(RESULTS / "real_models" / "clamped.csv").query("clamp == @most").set_index("layer")


def clamped_beside(most: float) -> pd.DataFrame:
    """Each quantity as the model is, and clamped, by layer."""
    free, cut = clamped(math.inf), clamped(most)
    columns = [one[name] for name in ("anisotropy", "sinks", "weight") for one in (free, cut)]
    frame = pd.concat(columns, axis=1)
    return frame.set_index(frame.index.astype(str))


def clamped_over(layers: list[int]) -> pd.DataFrame:
    """Anisotropy of these layers and bits per byte, for each clamp, none first."""
    tables = {most: clamped(most) for most in (math.inf, 1200, 600, 200)}
    rows = [[*table["anisotropy"][layers], table["bits_per_byte"].iloc[0]] for table in tables.values()]
    return pd.DataFrame(rows, index=CLAMPS)


def learned(recipe: str) -> pd.Series:
    return pd.read_csv(RESULTS / "learning" / "learning.csv").query("recipe == @recipe").iloc[-1]


def once_all() -> pd.DataFrame:
    """Verdicts on claims, each run counted once."""
    rows = pd.read_csv(RESULTS / "verdicts.csv").query("paper != 'primary contrast'").set_index("claim")
    return rows[[[*place] not in ABOUT["again"] for place in zip(rows["experiment"], rows["model"], strict=True)]]


def effects(claim: str, word: str) -> pd.Series:
    rows = once_all().loc[[claim]]
    return rows[rows["verdict"] == word]["effect"] if word else rows["effect"]


def tangents(column: str, condition: str, step: int | None = None) -> pd.Series:
    """Of the pair with gradients by layer, means over seeds, at a step; left out: the last."""
    rows = pd.read_csv(RESULTS / "matched_pair_gradients" / "tangents.csv")
    rows = rows[
        (rows["step"] == (rows["step"].max() if step is None else step)) & rows["run"].str.startswith(condition)
    ]
    return rows.groupby("layer")[column].mean()


def sink_share(model: str, threshold: float, place: str = "position 0") -> float:
    rows = pd.read_csv(RESULTS / "sink_curve" / "curve.csv").round({"threshold": 6})
    return one(rows, model=model, threshold=threshold, place=place)["mean"]


def by_level(quantity: str, share: float) -> pd.Series:
    """The pair with gradients, decoder to encoder, at a share of the smaller gain."""
    rows = table("matched_pair_gradients/contrasts_by_level.csv")
    return one(rows, quantity=quantity, positions="all", share=share)


def further(
    model: str,
    quantity: str,
    at: str | None = None,
    positions: str = "all",
    column: str = "mean",
    step: int | None = None,
) -> pd.Series:
    """A quantity of a further family by layer, at a step; left out: the last."""
    rows = pd.read_csv(RESULTS / "families" / "layers.csv", dtype={"at": str})
    rows = rows.query("model == @model and quantity == @quantity and positions == @positions")
    rows = rows[rows["step"] == (rows["step"].max() if step is None else step)]
    return (rows if at is None else rows[rows["at"] == at]).set_index("layer")[column]


def beside_loss(quantity: str, column: str, level: str = "token", model: str = "SmolLM2-135M") -> pd.Series:
    """By layer, of families/loss.csv."""
    rows = pd.read_csv(RESULTS / "families" / "loss.csv").query(
        "quantity == @quantity and level == @level and model == @model"
    )
    return rows.set_index("layer")[column]


def alike(layer: int, quantity: str = "cka_unbiased", permuted: str = "windows") -> pd.Series:
    """A row of calibrated.csv: two untrained networks."""
    rows = pd.read_csv(RESULTS / "families" / "calibrated.csv")
    return one(rows, layer=layer, quantity=quantity, permuted=permuted)
