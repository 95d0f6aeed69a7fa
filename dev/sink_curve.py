"""Share of heads with a sink over what counts as a sink: docs/results/sink_curve/curve.csv.

    .venv/bin/python -m dev.sink_curve MODELS PAIR

MODELS is a folder of `experiments/shape_of_learning.py`, PAIR one of `matched_pair_small.py`, both
measured with the family sinks (docs/findings/pretrained.md has the commands).
"""

import pathlib
import sys

import pandas as pd
import xarray as xr

from anisoscope.results import joined_files
from anisoscope.utils.files import read_json
from dev.real_models import RESULTS, student

TABLE = RESULTS / "sink_curve" / "curve.csv"
PLACES = {"sink_rate": "first token", "sink_rate_anywhere": "any one position"}
OURS = "our {}, 4 layers"


def rates(path: pathlib.Path) -> pd.DataFrame:
    """Return the share of all heads by place and threshold, with its interval, at the last step."""
    with xr.open_dataset(path) as table:
        last = table.isel(step=-1).load()
    rows = []
    for quantity, place in PLACES.items():
        share = last[f"{quantity}_over_blocks"].sel(positions="all")
        curves = {part: share.sel(statistic=part).values for part in ("mean", "low", "high")}
        rows.append(pd.DataFrame({"place": place, "threshold": share.threshold.values} | curves))
    return pd.concat(rows)


def model_rates(root: pathlib.Path) -> pd.DataFrame:
    labels = read_json(root / "models.json", "name a folder of shape_of_learning.py")
    paths = {label: root / label / "results.nc" for label in labels}
    return pd.concat(
        rates(path).assign(model=label, n=1) for label, path in paths.items() if path.exists()
    )


def pair_rates(root: pathlib.Path) -> pd.DataFrame:
    """Return means over seeds, with Student's intervals within the range of a share."""
    runs = pd.read_csv(root / "runs.csv")[["run", "condition"]].itertuples(index=False)
    each = pd.concat(
        [rates(root / run / "results.nc").assign(model=OURS.format(kind)) for run, kind in runs]
    )
    frame = student(each, ["model", "place", "threshold"], "mean")
    frame = frame.assign(low=frame.low.clip(lower=0), high=frame.high.clip(upper=1))
    columns = ["place", "threshold", "mean", "low", "high", "model", "n"]
    return frame.rename(columns={"count": "n"})[columns]


def main(models: str, pair: str) -> None:
    frame = pd.concat([model_rates(pathlib.Path(models)), pair_rates(pathlib.Path(pair))])
    joined_files.write_csv(frame, TABLE)


if __name__ == "__main__":
    main(*sys.argv[1:])
