"""Arrays in memory as a source: vectors of any origin through the same panel."""

import functools

import jax
import numpy as np

from panel.attention import Heads
from panel.config import MeasureConfig
from panel.families import FAMILIES
from panel.panel import MEASURED, Sample, panel


def measure_arrays(
    clouds_NPD: np.ndarray,
    groups_P: np.ndarray | None,
    settings: MeasureConfig,
    heads: Heads | None = None,
    others: dict[str, np.ndarray] | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """{"measured": {quantity: array}}, and "gaussian" where it is asked for: one batch and one set of positions.

    Shapes: (layers, points, width), and of each point the label of the group it comes from (window, sentence, image):
    what is resampled for the intervals. None takes points in order for groups of independent ones. `settings.groups`
    must divide the number of labels, each label have as many points, and `settings.points` be their number; ValueError
    says what is not so. Null models of an input, shuffled and untrained, are not to be had of arrays.
    """
    clouds_NPD = np.asarray(clouds_NPD, np.float32)
    if clouds_NPD.ndim != 3:
        raise ValueError(f"clouds have shape {clouds_NPD.shape}; (layers, points, width) is needed")
    if heads is not None and groups_P is not None:
        raise ValueError("heads come with points in the order of their windows: leave groups_P out")
    if heads is None and any(FAMILIES[name].of in ("heads", "vectors") for name in settings.families):
        raise ValueError(f"families are {settings.families}; those of attention need heads")
    points = clouds_NPD.shape[1]
    if points % settings.groups:
        raise ValueError(f"{points} points make no {settings.groups} groups of equal size")
    order_P = np.arange(points)
    if groups_P is not None:
        labels, counts = np.unique(groups_P, return_counts=True)
        if len(groups_P) != points or len(set(counts.tolist())) > 1 or len(labels) % settings.groups:
            raise ValueError(
                f"{points} points have {len(groups_P)} group labels, {len(labels)} different ones with {counts.min()} "
                f"to {counts.max()} points each; as many of each are needed, and a multiple of {settings.groups} labels"
            )
        order_P = np.argsort(groups_P, kind="stable")
    sample = Sample(clouds_NPD[:, order_P], heads)
    beside = {name: np.asarray(other, np.float32)[:, order_P] for name, other in (others or {}).items()}
    values = compiled(settings)({MEASURED: sample}, beside, key=jax.random.key(settings.seed))
    return jax.tree.map(lambda x: np.asarray(x)[None, None], values)


@functools.cache
def compiled(settings: MeasureConfig) -> jax.stages.Wrapped:
    """The panel by itself; one program for all arrays of one shape."""
    return jax.jit(functools.partial(panel, settings=settings))
