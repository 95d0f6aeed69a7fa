"""The claims of the three papers, and of later ones, that can be tested here: claims.csv.

A claim says that an effect is positive. `smallest` is the smallest effect of interest, and `reason`
says where it comes from. `SEEDS` is the rule for most numbers of trained models: twice their
standard deviation between seeds, pooled over conditions, rounded to the nearest of 1, 2 and 5 times
a power of ten on a logarithmic scale. The column `spread` has the number before rounding, which
`python -m findings.claims.verdict_tables --spread` prints. Bells and phases of the dimension have an earlier
bound, where the rule gives less or the same.
"""

import csv
import pathlib
from typing import NamedTuple

from anisoscope.analysis.shapes import PHASE

DECODER, ENCODER = ("next", "causal"), ("masked", "bidirectional")  # objective and mask
MODELS = {DECODER: "decoder", ENCODER: "encoder"}  # all others: "other"
PLAIN = {  # a model with other values is not one of the papers'
    "model.attention": "softmax",
    "model.qk_norm": False,
    "model.center_queries": False,
    "model.sink": False,
    "train.penalty": 0.0,
}
LEARNED = 1.0  # bits of gain over unigram, below which a model has not learned
SEEDS = "twice the seeds' standard deviation"


class Claim(NamedTuple):
    """A claim: `quantity` times `sign` is positive, for each model of `models`."""

    paper: str
    wording: str  # short, for figures and tables
    quantity: str
    smallest: float  # effect of interest
    reason: str = SEEDS
    mark: str = "literal"  # or second-hand, or reconstructed
    statistic: str = "last checkpoint"
    table: str = "runs"  # the reader of evidence.py
    sign: int = 1  # -1: the claim is of a decrease
    absence: bool = False  # the claim is that there is no effect of interest
    bounded: bool = False  # one-sided, selected or a rank: a sign test in place of Student's
    low_bar: str = ""  # why nearly every trained model passes
    models: tuple[str, ...] = ("decoder",)
    seeds: int = 3  # seeds, models or pairs: fewer decide nothing
    learned: bool = True  # whether it is about models that have learned
    regime: tuple[tuple[str, str], ...] = ()  # what must be true of each run; the reason if not
    # for a loss-matched contrast: the setting, its two values, and what is held ("": anything)
    contrast: tuple[str, ...] = ()


READABLE = (
    (
        "last_dimension + compression <= 3.32",
        "its dimension exceeds 10, above which no estimator is to be trusted",
    ),
    (
        "last_dimension + compression - expansion >= 0",
        "its dimension starts below 1, which no cloud has",
    ),
)


def compressible(suffix: str) -> tuple[tuple[str, str], ...]:
    """Return the regime of a compression, which must follow an expansion."""
    return (
        *READABLE,
        (f"expansion{suffix} >= {PHASE}", f"it has not expanded by {PHASE:g} log2 units before"),
        (
            f"compression{suffix} > 0",
            "its dimension is largest at the last checkpoint: a compression may still come",
        ),
    )


REGIMES = {
    "stabilization": (
        ("growth + drop_from_peak >= 0.05", "its anisotropy has never grown by 0.05"),
    ),
    "expansion_own_rule": READABLE,
    "expansion_twonn": READABLE,
    "compression_own_rule": compressible("_microscope"),
    "compression_twonn": compressible(""),
}


CELLS = {  # how a cell of claims.csv is read; others are text
    "smallest": float,
    "sign": int,
    "absence": bool,
    "bounded": bool,
    "models": lambda cell: tuple(cell.split()),
    "seeds": int,
    "learned": lambda cell: cell != "no",
    "contrast": lambda cell: tuple(cell.split("|")),
}


def read_claims() -> dict[str, Claim]:
    """Read claims.csv; an empty cell has the default."""
    claims = {}
    with open(pathlib.Path(__file__).with_name("claims.csv"), encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, _ = row.pop("claim"), row.pop("spread")
            cells = {key: CELLS.get(key, str)(cell) for key, cell in row.items() if cell}
            claims[name] = Claim(regime=REGIMES.get(name, ()), **cells)
    return claims


CLAIMS = read_claims()
