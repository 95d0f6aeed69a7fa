"""The look of the gallery's figures: that of the project's own."""

from typing import Any

import matplotlib

from anisoscope.plot import style

OWN = {
    "figure.figsize": (5.2, 3.4),
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "text.parse_math": True,  # the marks of a logarithmic axis are formulas
}


def reset(conf: dict[str, Any], script: str) -> None:
    matplotlib.rcParams.update(style.RC | OWN)
