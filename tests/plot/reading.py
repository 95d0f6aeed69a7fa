"""What tests read off a figure by matplotlib's public interface: words, bands, places on the paper."""

import itertools

import numpy as np
import xarray as xr
from matplotlib.collections import FillBetweenPolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D


def footer_of(figure: Figure) -> str:
    """The footer on one line, as `caption_of` returns the caption."""
    return " ".join(figure.get_supxlabel().split())


def caption_of(figure: Figure) -> str:
    return " ".join(figure.get_label().split())


def curve_is(line: Line2D, values: xr.DataArray, band: FillBetweenPolyCollection | None = None):
    """The line has the means, its band the ends of the interval; along one dimension."""
    mean, low, high = (values.sel(statistic=end).values for end in ("mean", "low", "high"))
    np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-5)
    if band is not None:
        points = band.get_paths()[0].vertices
        at = [points[points[:, 0] == x, 1] for x in line.get_xdata()]
        np.testing.assert_allclose([y.min() for y in at], low, rtol=1e-6)
        np.testing.assert_allclose([y.max() for y in at], high, rtol=1e-6)
        assert (low <= high).all()
        assert (low < high).any()


def inside(figure: Figure, name: str) -> None:
    """All lies on the paper, titles and legends apart from each other and from the panels."""
    figure.get_layout_engine().execute(figure)
    words = {text.get_text() for text in figure.texts}
    assert {figure.get_suptitle(), figure.get_supxlabel()} <= words
    texts = [text for text in figure.texts if text.get_text() != figure.get_supylabel()]
    extents = [text.get_window_extent() for text in texts]
    extents += [axes.get_tightbbox() for axes in figure.axes]
    paper = figure.bbox.padded(1)
    for extent in extents:
        assert paper.x0 <= extent.x0 <= extent.x1 <= paper.x1, name
        assert paper.y0 <= extent.y0 <= extent.y1 <= paper.y1, name
    for one, other in itertools.combinations(extents, 2):
        assert not one.padded(-1).overlaps(other.padded(-1)), name
