"""Figures, drawn from tables alone, on axes of one's own; draw.py has those that the command
draws.
"""

from anisoscope.plot.one_table import (
    by_layer,
    by_step,
    dimension_by_scale,
    effective_ranks,
    layer_map,
)

__all__ = ["by_layer", "by_step", "dimension_by_scale", "effective_ranks", "layer_map"]
