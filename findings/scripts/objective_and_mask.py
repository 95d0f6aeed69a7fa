"""Does the objective change the geometry more than the mask? Sizes of two changes, seed by seed.

    .venv/bin/python -m findings.scripts.objective_and_mask

It reads loss_matched.csv of findings/tables/mask_ablations and writes objective_less_mask.csv there:
the size of the change from next to masked characters under the causal mask, less that of the change
from the causal to the bidirectional mask with masked characters. A change counts in the direction of
its mean over seeds. Intervals are Student's, 95 %. Written after the changes had been read.
"""

import numpy as np
import pandas as pd

from anisoscope.results import joined_files
from findings.scripts.shared_tables import RESULTS, student

FOLDER = RESULTS / "mask_ablations"
QUANTITIES = ("growth", "expansion", "drift_growth")
CHANGES = (("causal_next", "causal_masked"), ("causal_masked", "bidirectional_masked"))


def sizes(rows: pd.DataFrame, before: str, after: str) -> pd.DataFrame:
    """Return the change of each seed in the direction of the mean change, (seed, quantity)."""
    names = rows["run"].str.rsplit("_", n=1, expand=True)
    runs = rows.assign(condition=names[0], seed=names[1]).drop_duplicates("run")
    means = runs.set_index(["condition", "seed"])[list(QUANTITIES)]
    change = means.loc[after] - means.loc[before]
    return change * np.sign(change.mean())


def main() -> None:
    table = pd.read_csv(FOLDER / "loss_matched.csv")
    ends = table["before"].isin(["next", "causal"]) & table["after"].isin(
        ["masked", "bidirectional"]
    )
    rows = table[ends & table["held"].isin(["causal", "masked"])]
    objective, mask = (sizes(rows, *change) for change in CHANGES)
    less = (objective - mask).melt(var_name="quantity", ignore_index=False).reset_index()
    frame = student(less, "quantity", "value")
    joined_files.write_csv(frame, FOLDER / "objective_less_mask.csv")
    print(frame.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
