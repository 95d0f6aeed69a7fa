"""What a quantity says of itself, and what a family of them is: the one schema of every number that
is stored.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from jax import Array

MEASURED = "measured"  # the sample that is not a null model
# of each quantity; replicates are the last axis (see measurement/intervals.py)
Values = dict[str, Array]

LAYER = ("layer",)  # 0: the sum of the embeddings; l: the residual stream after block l
LAYERS = ("layer", "other_layer")
HEAD = ("block", "head")

SHAPE_OF_LEARNING = "Razzhigaev et al. 2024, The Shape of Learning"
INHERENT = "Godey et al. 2024, Anisotropy Is Inherent to Self-Attention in Transformers"
RECONSTRUCTED = f"reconstruction after {INHERENT}"
HERE = "this project"

# ranges
SHARE, COSINE, NOT_NEGATIVE, AT_LEAST_1 = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf), (1.0, math.inf)


@dataclass(frozen=True, slots=True)
class Quantity:
    long_name: str
    formula: str
    source: str
    # what the family applies to get it, where it is one function
    read: Callable[..., Any] | None = None
    # that a value cannot leave: its interval ends there
    range: tuple[float, float] = (-math.inf, math.inf)
    _: KW_ONLY
    units: str = "1"
    dims: tuple[str, ...] = LAYER  # of one value
    resampling: str = ""  # how its interval is made, one of intervals.KINDS; "": the batches alone
    symbol: str = ""  # on the axes of figures, where the units are those of the model alone: |E x|
    nulls: tuple[str, ...] = ()  # its own null models, beside those of its family
    null_words: str = ""  # which null models say something about it, and which do not

    @property
    def raw_dims(self) -> tuple[str, ...]:
        """Dimensions of the array that is measured: replicates last."""
        return ("batch", "positions", *self.dims, *([self.resampling] if self.resampling else []))

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of a variable in a table."""
        words = {name: getattr(self, name) for name in ("long_name", "units", "formula", "source")}
        words["range"] = "{:g} to {:g}".format(*self.range)
        words["resampling"] = self.resampling or "batches"
        further = {"symbol": self.symbol, "null_models": self.null_words}
        return words | {name: text for name, text in further.items() if text}


jackknifed = functools.partial(Quantity, resampling="jackknife")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Quantities that are measured together, and the function that measures them.

    `input_kind` says what `compute` takes: "cloud" (a Cloud: one layer), "layers" (all layers, and others
    to compare with), "heads" (queries and keys of all blocks), "vectors" (the same, for vectors
    that are kept as they are), or "logit_lens" (all layers, and how a model reads its output off the
    last).
    """

    input_kind: str
    compute: Callable[..., Any]
    quantities: dict[str, Quantity]
    nulls: tuple[str, ...] = ("shuffled", "untrained")  # the null models that all quantities have
    neighbors: int = 0  # how many nearest of each point it reads
    # arrays of points x points that its program holds at once; others make blocks of rows
    distances: int = 0
    # whether it reads the types of points, which sources of a text alone know
    reads_types: bool = False
    coordinates: dict[str, tuple] = field(default_factory=dict)  # labels of its further dimensions

    @property
    def exact_nulls(self) -> set[str]:
        """Null models that need no draw: `compute` returns {sample: Values}, theirs beside the
        cloud's.
        """
        return {null for quantity in self.quantities.values() for null in quantity.nulls}
