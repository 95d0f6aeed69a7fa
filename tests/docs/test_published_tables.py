"""Tables of docs/results that dev/ makes are what its programs make of the tables beside them."""

import pandas as pd
import pytest

from dev import real_models, verdict_tables


@pytest.mark.parametrize("name", ["bells", "evidence"])
def test_profiles_of_pretrained_models(name):
    folder = real_models.RESULTS / "real_models"
    if name == "bells":
        layers = pd.concat([pd.read_csv(real_models.TABLE), real_models.ours()])
        made = real_models.bells(layers)
    else:
        made = pd.DataFrame(verdict_tables.profiles())
    kept = pd.read_csv(folder / f"{name}.csv")
    for column in made.columns.intersection(kept.columns):
        if kept[column].dtype.kind == "f":
            assert made[column].replace("", float("nan")).to_numpy(float) == pytest.approx(
                kept[column].to_numpy(), nan_ok=True
            )
        else:
            assert made[column].tolist() == kept[column].tolist()
