"""The joined table: labels, intervals, predictions and fixed points."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.results import joined_files
from anisoscope.sources import untrained_tables
from anisoscope.sources.untrained_tables import (
    KIND_COLUMNS,
    UNTRAINED_MEASURED,
    UNTRAINED_QUANTITIES,
    bias_norm,
    fixed_points,
    kinds,
)
from anisoscope.utils.errors import RunError

MOST = CHOICES | {"masks": ("causal",)}
NORMS = (0.0, 0.1, 1.0, 10.0, 100.0)
CONFIG = UntrainedConfig(
    width=16, heads=2, blocks=2, vocabulary=50, context=8, norms=NORMS, seeds=3, seed=5, **MOST
)


def values_of(config, kind, norm, rng):
    """Post-LN: the norm out is 4, whatever comes in; pre-LN: it is what comes in and a tenth."""
    norm_in = np.full(config.seeds, norm or 0.001)
    out = np.full(config.seeds, 4.0) if kind.norm_order == "post" else 1.1 * norm_in
    values = {name: rng.random((config.seeds, config.blocks)) for name in UNTRAINED_MEASURED}
    values["cosine_in"] = values["cosine_in"][:, 0]
    values["score_std"] += 5  # no interval ends at 0
    return values | {"norm_in": norm_in, "norm_out": np.stack([out] * config.blocks, 1)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("untrained"), np.random.default_rng(0)
    paths = []
    for kind, (index, relative) in itertools.product(kinds(CONFIG), enumerate(NORMS)):
        norm = bias_norm(CONFIG, kind, relative)
        values = values_of(CONFIG, kind, norm, rng)
        paths.append(root / f"{len(paths)}.nc")
        joined_files.write_table(
            untrained_tables.kind_table(CONFIG, kind, index, values), paths[-1]
        )
    untrained_tables.join_kinds(CONFIG, paths[::-1], root)
    return root


def test_intervals_are_students(root):
    whole, seeds = (joined_files.read_table(root / f"{name}.nc") for name in ("results", "seeds"))
    place = {"norm_order": "pre", "mask": "causal", "embedding": "raw", "target": "keys"}
    place |= {"relative_norm": 1.0, "block": 2}
    values = seeds.score_std.sel(place).values
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    found = whole.score_std.sel(place).sel(statistic=["mean", "low", "high"])
    np.testing.assert_allclose(found, [values.mean(), low, high])
    assert whole.cosine_in.dims == ("statistic", *KIND_COLUMNS, "relative_norm")


@pytest.mark.parametrize(
    ("norm_in", "norm_out", "bias"),
    [
        ([0.5, 1, 10, 100], [5, 5, 5, 5], 5),
        ([0.5, 1, 10, 100], [5, 10, 10, 10], 10),  # on a norm of the grid
        ([3, 3, 3, 3], [2, 2, 4, 2], 10 ** (np.log(3 / 2) / np.log(2))),  # the first of two
        # between 0 and the first norm there is no logarithm
        ([3, 3, 3, 3], [2, 4, 4, 4], np.nan),
        ([3, 3, 3, 3], [3, 3 + 1e-6, 3 - 1e-6, 3], np.nan),  # equal but for rounding
        ([3, 3, 3, 3], [4, 4, 3, 3], np.nan),  # they become equal, and neither passes the other
        ([3, 3, 3, 3], [4, 4, 3, 2], 10),
        ([1, 1, 10, 100], [2, 2, 20, 200], np.nan),
        ([1], [2], np.nan),
        ([1, 1], [2, 0.5], np.nan),
    ],
)
def test_crossings_are_found_once_and_only_where_they_are(norm_in, norm_out, bias):
    """Of one kind, seed and block."""
    dims = (*KIND_COLUMNS, "relative_norm", "seed", "block")
    norms = np.array([0.0, 1.0, 10.0, 100.0])[: len(norm_in)]
    table = xr.Dataset(
        {
            "norm_in": (dims[:-1], np.reshape(norm_in, (1, 1, 1, 1, -1, 1))),
            "norm_out": (dims, np.reshape(norm_out, (1, 1, 1, 1, -1, 1, 1))),
            "bias_norm": (dims[:5], norms.reshape(1, 1, 1, 1, -1)),
        },
        coords={"relative_norm": norms},
    )
    found = fixed_points(table).fixed_point_bias.item()
    assert found == pytest.approx(bias, nan_ok=True)


def test_predictions_stand_beside_the_first_block(root):
    frame, whole = (
        pd.read_csv(root / "results.csv"),
        joined_files.read_table(root / "results.nc"),
    )
    assert set(frame.metric) == set(UNTRAINED_QUANTITIES)
    known = frame[frame.metric == "score_std_within"].set_index("block").predicted.notna()
    assert known[1].all()
    assert not known[2].any()
    measured = frame[frame.metric == "cosine_in"]
    assert len(measured) == 16 * len(NORMS)
    means = whole.cosine_in.sel(statistic="mean").values
    np.testing.assert_allclose(sorted(measured["mean"]), np.sort(means.ravel()))
    rows = measured.set_index(["target", "embedding", "norm_order"]).predicted.sort_index()
    expected = np.square(NORMS) / (np.square(NORMS) + 1)
    np.testing.assert_allclose(rows["input", "raw", "pre"], expected + (1 - expected) / 50)
    np.testing.assert_allclose(rows["keys"], 1 / 50)  # such a bias never touches the input


def test_a_copied_measurement_is_refused(root, tmp_path):
    """Joined without a word, it would hide the norm that it stands for."""
    paths = sorted(root.glob("[0-9]*.nc"))
    with pytest.raises(RunError, match="holds a measurement twice"):
        untrained_tables.join_kinds(CONFIG, [*paths[1:], paths[1]], tmp_path)
