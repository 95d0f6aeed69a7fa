"""Read how isotropic the neighborhoods of pretrained models are: real_models/local.csv.

    .venv/bin/python -m findings.scripts.local_isotropy RUN …

Each RUN is a folder of `experiments/shape_of_learning.py` with the families `spectrum` and `local`
(findings/bell.md has the command). Values are means over block outputs. Rows of
other models stay.
"""

import pathlib
import sys

import pandas as pd

from findings.scripts.shared_tables import MODELS, SIDES, ends, read_models, replace_models

QUANTITIES = {
    "anisotropy": "anisotropy_over_blocks",
    "local_anisotropy": "local_anisotropy_over_blocks",
    "local_anisotropy_excess": "local_anisotropy_over_blocks_excess",
}

if __name__ == "__main__":
    rows = []
    for labels, last in (pair for path in sys.argv[1:] for pair in read_models(pathlib.Path(path))):
        for side in SIDES:
            for name, variable in QUANTITIES.items():
                own = last[variable].sel(positions=side)
                own = own.sel(null="gaussian") if "null" in own.dims else own
                rows.append(labels | {"positions": side, "quantity": name} | ends(own))
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("mean", "low", "high"), float))
    replace_models(MODELS / "local.csv", frame)
    print(frame.round(3).to_string(index=False))
