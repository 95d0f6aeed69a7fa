"""Share of heads with a sink over what counts as a sink: findings/tables/sink_curve/curve.csv.

    .venv/bin/python -m findings.scripts.sink_curve MODELS [PAIR]

MODELS is a folder of `experiments/shape_of_learning.py`, PAIR one of `matched_pair_small.py`, both
measured with the family sinks (findings/bell.md has the commands). Values of the pair are
means over seeds, with Student's intervals within the range of a share. Rows of other models stay.
"""

import pathlib
import sys

import pandas as pd
import xarray as xr

from findings.scripts.shared_tables import (
    RESULTS,
    ends,
    read_last,
    read_models,
    replace_models,
    student,
)

PLACES = {"sink_rate": "first token", "sink_rate_anywhere": "any one position"}
COLUMNS = ["place", "threshold", "mean", "low", "high", "model", "n"]


def rates(last: xr.Dataset, model: str) -> pd.DataFrame:
    """Return the share of all heads by place and threshold, with its interval."""
    rows = []
    for quantity, place in PLACES.items():
        share = last[f"{quantity}_over_blocks"].sel(positions="all")
        columns = {"place": place, "threshold": share.threshold.values} | ends(share)
        rows.append(pd.DataFrame(columns).assign(model=model, n=1))
    return pd.concat(rows)


def read_pair(pair: pathlib.Path) -> pd.DataFrame:
    """Return the rates of decoders and encoders, means over seeds."""
    runs = pd.read_csv(pair / "runs.csv")[["run", "condition"]].itertuples(index=False)
    each = [rates(read_last(pair / run), f"our {kind}, 4 layers") for run, kind in runs]
    own = student(pd.concat(each), ["model", "place", "threshold"], "mean")
    own = own.assign(n=own["count"], low=own.low.clip(lower=0), high=own.high.clip(upper=1))
    return own[COLUMNS]


def main(models: pathlib.Path, *pairs: pathlib.Path) -> None:
    pretrained = [rates(last, labels["model"]) for labels, last in read_models(models)]
    rows = pd.concat([*pretrained, *map(read_pair, pairs)])
    replace_models(RESULTS / "sink_curve" / "curve.csv", rows)


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
