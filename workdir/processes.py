"""Several processes, one run: all of them compute, the first one writes."""

from collections.abc import Callable

import jax
import numpy as np
from jax.experimental import multihost_utils

from workdir.errors import RunError, UserError


def is_first() -> bool:
    return jax.process_index() == 0


def largest(*values: float) -> list[float]:
    """The largest of each value over all processes: how they agree on what each has seen for itself."""
    if jax.process_count() == 1:
        return list(values)
    return multihost_utils.process_allgather(np.asarray(values, np.float32)).max(0).tolist()


def on_first(work: Callable[[], None]) -> None:
    """Do `work` on the first process, while the others wait; where it refuses, all of them do."""
    refusal = None
    if is_first():
        try:
            work()
        except (UserError, RunError, OSError) as error:
            refusal = error
    if any(largest(refusal is not None)):
        raise refusal or UserError("the first process has refused; see its message")
