"""Compare pretrained models, the positive control, with the models trained here.

It writes layers.csv and bells.csv in findings/tables/real_models, and findings/figures/real_models.png.

    .venv/bin/python -m findings.scripts.real_models [RUN]

RUN is a folder of `experiments/shape_of_learning.py` (findings/bell.md has the command);
its last tables replace those of the same models in layers.csv first. Our models are those of
findings/tables/matched_pair_adamw, means over five seeds.
"""

import pathlib
import sys

import pandas as pd

from anisoscope.plot import style
from anisoscope.results import joined_files
from findings.scripts import bell_figure
from findings.scripts.shared_tables import (
    MODELS,
    RESULTS,
    SIDES,
    ends,
    read_models,
    read_shape,
    replace_models,
    save_figure,
    student,
)

TABLE = MODELS / "layers.csv"


def read(root: pathlib.Path) -> pd.DataFrame:
    """Return a row for each model, set of positions and layer."""
    rows = []
    for labels, last in read_models(root):
        for side in SIDES:
            own = last.sel(positions=side)
            columns = labels | {"positions": side, "layer": own.layer.values}
            columns |= {"depth": own.depth.values} | ends(own.anisotropy)
            columns["norm_ratio"] = own.norm_ratio.sel(statistic="mean").values
            rows.append(pd.DataFrame(columns).assign(bits_per_byte=last.attrs["bits_per_byte"]))
    return pd.concat(rows)


def ours() -> pd.DataFrame:
    """Return means over the seeds of the matched pair, with Student's intervals."""
    rows = pd.read_csv(RESULTS / "matched_pair_adamw" / "layers.csv")
    frame = student(rows, ["condition", "positions", "layer"], "anisotropy")
    frame = frame.rename(columns={"condition": "kind"})
    names = "our " + frame.kind + ", 4 layers"
    return frame.assign(model=names, depth=frame.layer / frame.layer.max())


def bells(frame: pd.DataFrame) -> pd.DataFrame:
    """Compute both definitions of a bell, with the functions used for the project's own models."""
    rows = []
    by = ["model", "kind", "positions"]
    for labels, own in frame[frame.positions.isin(SIDES)].groupby(by, sort=False):
        values = [read_shape(name, own["mean"].to_numpy()) for name in bell_figure.ENDS]
        rows.append([*labels, *values])
    return pd.DataFrame(rows, columns=[*by, *bell_figure.ENDS])


if __name__ == "__main__":
    for path in sys.argv[1:]:
        replace_models(TABLE, read(pathlib.Path(path)))
    table = pd.concat([pd.read_csv(TABLE), ours()])
    bell = bells(table)
    joined_files.write_csv(bell, MODELS / "bells.csv")
    with style.context():
        save_figure(bell_figure.draw(table), "real_models", bell_figure.TITLE)
    print(bell.round(3).to_string(index=False))
