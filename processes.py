"""Several processes, one run: all of them compute, the first one writes."""

import jax
import numpy as np
from jax.experimental import multihost_utils


def is_first() -> bool:
    return jax.process_index() == 0


def largest(*values: float) -> list[float]:
    """The largest of each value over all processes: how they agree on what each has seen for itself."""
    if jax.process_count() == 1:
        return list(values)
    return multihost_utils.process_allgather(np.asarray(values, np.float32)).max(0).tolist()


def meet(where: str) -> None:
    """Wait until every process has come here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(where)
