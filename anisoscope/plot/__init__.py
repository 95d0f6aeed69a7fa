"""Draw figures from tables alone, on the user's axes; draw.py draws those of the command."""

from anisoscope.utils.extras import required_by

with required_by("anisoscope.plot"):
    from anisoscope.plot.one_table import (
        by_layer,
        by_step,
        dimension_by_scale,
        effective_ranks,
        layer_map,
    )

__all__ = ["by_layer", "by_step", "dimension_by_scale", "effective_ranks", "layer_map"]


def __dir__() -> list[str]:
    return __all__
