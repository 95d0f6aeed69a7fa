"""Loss beside geometry of single points: what position and frequency explain is no likeness of the two."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis import loss_geometry
from anisoscope.measurement.tables import files
from anisoscope.utils.errors import UserError

WINDOWS, TIME = 12, 20


def table(seed=0):
    """Norms follow the loss; cosines only the position, and the loss too."""
    generator = np.random.default_rng(seed)
    time, window = np.tile(np.arange(TIME), WINDOWS), np.repeat(np.arange(WINDOWS), TIME)
    log_frequency = generator.normal(size=WINDOWS * TIME)
    of_window = generator.normal(size=WINDOWS)[window]
    loss = of_window + 0.5 * time + log_frequency + generator.normal(size=WINDOWS * TIME)
    variables = {
        "norm": loss + generator.normal(size=WINDOWS * TIME),
        "cosine_to_mean": 0.5 * time + 0.3 * generator.normal(size=WINDOWS * TIME),
        "turning_angle": np.where(time == 0, np.nan, generator.normal(size=WINDOWS * TIME)),
    }
    variables = {name: (("layer", "point"), value[None]) for name, value in variables.items()}
    variables |= {"local_dimension": (("layer", "neighbours", "point"), np.ones((1, 1, WINDOWS * TIME)))}
    coords = {"layer": [0], "ngram": [1], "frequency": (("ngram", "point"), np.exp(log_frequency)[None])}
    coords |= {"position": ("point", time), "window": ("point", window)}
    return xr.Dataset(variables | {"loss": ("point", loss)}, coords)


def test_what_is_held_is_taken_out_and_what_is_there_stays():
    points = table()
    found = loss_geometry.of_points(points).set_index(["quantity", "level"])
    norm, cosine = found.loc[("norm", "token")], found.loc[("cosine_to_mean", "token")]
    assert 0.4 < norm.partial_low < norm.partial < norm.partial_high
    assert cosine.spearman_low > 0.5
    assert cosine.partial_low < 0 < cosine.partial_high
    assert found.loc[("turning_angle", "token")].n == WINDOWS * (TIME - 1)
    assert found.loc[("norm", "window")].n == WINDOWS
    assert found.loc[("norm", "window")].spearman > 0.7
    assert np.isnan(found.loc[("local_dimension", "token")].spearman)

    frame = pd.DataFrame({name: points[name].values.ravel() for name in ("norm", "loss", "position", "frequency")})
    ranks = frame.rank()
    np.testing.assert_allclose(norm.spearman, ranks.corr().loc["norm", "loss"], rtol=1e-9)
    inverse = np.linalg.inv(ranks.corr().to_numpy())  # the partial correlation, from the inverse
    np.testing.assert_allclose(norm.partial, -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]), rtol=1e-9)


def test_of_a_run_by_step_and_a_table_of_old_is_told(tmp_path):
    with pytest.raises(UserError, match=r"measure\.points_table=True"):
        loss_geometry.of_run(tmp_path)
    for step in (10, 2):
        files.write(table(step), tmp_path / "points" / f"{step}.nc")
    assert loss_geometry.of_run(tmp_path)["step"].drop_duplicates().tolist() == [2, 10]
    files.write(table().drop_vars("loss"), tmp_path / "points" / "30.nc")
    with pytest.raises(UserError, match=r"30\.nc has no losses of single points; move"):
        loss_geometry.of_run(tmp_path)
