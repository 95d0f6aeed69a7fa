"""The schema of every stored number: quantities and families of quantities."""

import functools
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

from jaxtyping import Array

MEASURED = "measured"  # the sample that is not a null model
# {quantity: array}; replicates are the last axis (see engine/intervals.py)
Values = dict[str, Array]

# null models that families compute without a draw of points: as many independent normal points with
# one variance in all directions; the first principal direction shrunk to the variance of the second;
# all vectors of a cluster multiplied by one random sign
ISOTROPIC, CAPPED, FLIPPED = "isotropic", "capped", "flipped"
PERMUTED = "permuted"  # of two clouds, one with its windows in another order
# made of points: engine/null_models.py, or the source
POINT_NULLS = ("gaussian", "shuffled", "untrained")

LAYER = ("layer",)  # 0: the sum of the embeddings; l: the residual stream after block l
LAYERS = ("layer", "other_layer")
HEAD = ("block", "head")

SHAPE_OF_LEARNING = "Razzhigaev et al. 2024, The Shape of Learning"
INHERENT = "Godey et al. 2024, Anisotropy Is Inherent to Self-Attention in Transformers"
RECONSTRUCTED = f"reconstruction after {INHERENT}"
HERE = "this project"

SHARE, NOT_NEGATIVE = (0.0, 1.0), (0.0, math.inf)  # ranges
AT_LEAST_1, AT_MOST_1 = (1.0, math.inf), (-math.inf, 1.0)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A stored quantity: its name, formula, source, range, dimensions and null models."""

    long_name: str
    formula: str
    source: str = HERE  # source of the formula
    # limits of the values; intervals are cut at them
    range: tuple[float, float] = (-math.inf, math.inf)
    _: KW_ONLY
    units: str = "1"
    dims: tuple[str, ...] = LAYER  # dimensions of a value
    # how its interval is made, an entry of intervals.RESAMPLINGS; "": the batches are the sample
    resampling: str = "jackknife"
    from_layer_1: bool = False  # read beside the layer before: the first layer has no value
    symbol: str = ""  # on axes of figures, for quantities in the units of the activations: |E x|
    nulls: tuple[str, ...] = ()  # null models in addition to those of its family
    null_words: str = ""  # which null models are informative, and which are not
    read: Callable[..., Any] | None = None  # the formula, where the family calls it by itself

    @property
    def raw_dims(self) -> tuple[str, ...]:
        """Dimensions of the measured array; replicates come last."""
        return ("batch", "positions", *self.dims, *([self.resampling] if self.resampling else []))

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the quantity's variable in a table."""
        words = {name: getattr(self, name) for name in ("long_name", "units", "formula", "source")}
        words["range"] = "{:g} to {:g}".format(*self.range)
        words["resampling"] = self.resampling or "batches"
        further = {"symbol": self.symbol, "null_models": self.null_words}
        return words | {name: text for name, text in further.items() if text}


# kinds of numbers by their range
share = functools.partial(Quantity, range=SHARE)
correlation = functools.partial(Quantity, range=(-1.0, 1.0))
magnitude = functools.partial(Quantity, range=NOT_NEGATIVE)
norm = functools.partial(magnitude, units="activation")  # has a symbol for the axes of figures
count = functools.partial(magnitude, units="points", resampling="")


@dataclass(frozen=True, slots=True)
class Family:
    """Quantities that are measured together, and the function that measures them."""

    # what `compute` takes: "cloud" (a Cloud: a single layer), "layers" (LayerClouds: all layers, and
    # other clouds to compare with), "heads" (queries and keys of all blocks), or "logit_lens" (all
    # layers, and the unembedding of the model)
    kind: Literal["cloud", "layers", "heads", "logit_lens"]
    compute: Callable[..., Any]
    quantities: dict[str, Quantity]
    nulls: tuple[str, ...] = ("shuffled", "untrained")  # null models of all its quantities
    _: KW_ONLY
    neighbors: int = 0  # nearest neighbors of each point that it reads
    # whether it reads the types of points, which only sources of texts know
    reads_types: bool = False
    coordinates: dict[str, tuple] = field(default_factory=dict)  # labels of further dimensions
    # (points, width, fewest and most points of one program) -> arrays in NumPy that `compute` finds
    # in the cloud's `constants`
    constants: Callable[[int, int, int, int], Any] | None = None

    @property
    def exact_nulls(self) -> set[str]:
        """Null models that need no draw: `compute` returns {sample: Values}, theirs included."""
        return {null for quantity in self.quantities.values() for null in quantity.nulls}


def read_all(quantities: dict[str, Quantity], *arguments: Any) -> Values:
    """Compute the quantities that have a formula of their own from the same arguments."""
    return {
        name: quantity.read(*arguments) for name, quantity in quantities.items() if quantity.read
    }
