"""What the scripts share: folders, names of models, runs, means over seeds, lines and figures."""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.analysis.shapes import SHAPES, Curve
from anisoscope.plot import style
from anisoscope.results import joined_files
from anisoscope.utils.files import read_json

RESULTS, FIGURES = pathlib.Path("findings/tables"), pathlib.Path("findings/figures")
MODELS = RESULTS / "real_models"
SIDES = {"all": "all positions", "without_first_token": "without the first token"}
PARTS = ["mean", "low", "high"]
NAMES = {
    "SmolLM2-135M-Instruct": "SmolLM2 135M",
    "Qwen2.5-Coder-0.5B-Instruct": "Qwen2.5 0.5B",
    "Qwen2.5-Coder-1.5B-Instruct": "Qwen2.5 1.5B",
    "Gemma-3-270M": "Gemma 3 270M",
    "our decoder, 4 layers": "decoder trained here",
    "MPNet-base": "MPNet",
    "MiniLM": "MiniLM",
    "Whisper-base": "Whisper (speech)",
    "our encoder, 4 layers": "encoder trained here",
}
COLORS = dict(zip(NAMES, style.COLORS, strict=False))


def read_last(folder: pathlib.Path) -> xr.Dataset:
    """Read the last step of a run's table."""
    with xr.open_dataset(folder / "results.nc") as table:
        return table.isel(step=-1).load()


def read_models(root: pathlib.Path) -> Iterator[tuple[dict[str, str], xr.Dataset]]:
    """Yield the labels and the last table of each model of a run of shape_of_learning.py."""
    models = read_json(root / "models.json", "name a folder of shape_of_learning.py")
    for label, about in models.items():
        if (root / label / "results.nc").exists():
            yield {"model": label, "kind": about["kind"]}, read_last(root / label)


def ends(values: xr.DataArray) -> dict[str, Any]:
    """Return mean, low and high."""
    return {part: values.sel(statistic=part).values for part in PARTS}


def student(rows: pd.DataFrame, by: str | list[str], value: str) -> pd.DataFrame:
    """Return means over seeds with Student's intervals, a row for each of `by`."""
    frame = rows.groupby(by)[value].agg(["mean", "sem", "count"]).reset_index()
    half = frame["sem"] * scipy.stats.t.ppf(0.975, frame["count"] - 1)
    return frame.assign(low=frame["mean"] - half, high=frame["mean"] + half)


def replace_models(path: pathlib.Path, new: pd.DataFrame) -> None:
    """Write rows into a table, in place of those of the same models."""
    kept = [pd.read_csv(path).query("model not in @new.model.values")] if path.exists() else []
    joined_files.write_csv(pd.concat([*kept, new]), path)


def read_shape(name: str, profile_L: np.ndarray) -> float:
    """Read a shape off a profile over layers, the embedding first."""
    return SHAPES[name].read(Curve(profile_L[None, None], np.zeros(1), layered=True)).item()


def draw_line(ax: Axes, rows: pd.DataFrame, x: str, **look: Any) -> None:
    """Draw the means of rows with low and high as a band."""
    style.plot_with_interval(ax, *[rows[name].to_numpy(float) for name in (x, *PARTS)], **look)


def save_figure(figure: Figure, name: str, title: str = "", note: str = "") -> None:
    """Add title and footer, and write a figure of the documents."""
    if title:
        style.title(figure, title)
    if note:
        style.add_footer(figure, [note])
    figure.savefig(FIGURES / f"{name}.png", dpi=150)
