"""Read how isotropic the neighborhoods of pretrained models are: real_models/local.csv.

    .venv/bin/python -m dev.local_isotropy RUN …

Each RUN is a folder of `experiments/shape_of_learning.py` with the families `spectrum` and `local`
(docs/findings/pretrained.md has the command). Values are means over block outputs.
"""

import pathlib
import sys

import pandas as pd
import xarray as xr

from anisoscope.results import joined_files
from anisoscope.utils.files import read_json
from dev.real_models import PARTS, RESULTS, SIDES

TABLE = RESULTS / "real_models" / "local.csv"
QUANTITIES = ("anisotropy", "local_anisotropy", "local_anisotropy_excess")


def read(root: pathlib.Path) -> pd.DataFrame:
    """Return a row for each model, set of positions and quantity."""
    rows = []
    models = read_json(root / "models.json", "name a folder of shape_of_learning.py")
    for label, about in models.items():
        with xr.open_dataset(root / label / "results.nc") as table:
            last = table.isel(step=-1).load()
        for side in SIDES:
            for name in QUANTITIES:
                over = (
                    name.replace("_excess", "") + "_over_blocks" + "_excess" * ("_excess" in name)
                )
                own = last[over].sel(positions=side)
                own = own.sel(null="gaussian") if "null" in own.dims else own
                values = {part: own.sel(statistic=part).item() for part in PARTS}
                labels = {"model": label, "kind": about["kind"], "positions": side}
                rows.append(labels | {"quantity": name} | values)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    frame = pd.concat([read(pathlib.Path(path)) for path in sys.argv[1:]])
    joined_files.write_csv(frame, TABLE)
    print(frame.round(3).to_string(index=False))
