"""What measuring clouds will take, told before long work.

The time is floating-point operations over a speed that is measured here in a fraction of a second. Weights come from
timings of each part on two CPU cores; on other machines they are a guess.
"""

import sys
from collections.abc import Iterable

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.nulls import DRAWS
from anisoscope.utils import processes
from anisoscope.utils.speed import duration, speed

# Of a cloud, in products of the cloud with itself; the search for neighbours by how many are wanted.
FAMILY = {"spectrum": 0.35, "outliers": 1.2, "leading": 0.2, "similarity": 0.4, "frequency": 0.6, "scale": 0.3}
FAMILY |= {"trajectory": 0.1, "massive": 0.1, "estimators": 15.0}  # further families, on cores that were busy
SEARCH = {"dimension": 1.2, "comparison": 1.3, "scale": 2.6, "imbalance": 1.3, "hubness": 1.3, "estimators": 1.4}
MEASURED = {"readout": 1.9, "linearity": 0.7}  # of the clouds as measured alone; for each pair of layers:
PAIRS = {"comparison": 0.3, "alignment": 0.4, "imbalance": 1.0}
GAUSSIAN, ATTENTION = 0.9, 2.4  # to draw a cloud; a block of 256 positions
SORTING = 128  # coordinates that take as long as to sort and select: fewer of them gain nothing
# Of a cloud, in products points x width x the smaller of both; the last is a Gaussian cloud.
DECOMPOSED = {"spectrum": 12.0, "outliers": 12.0, "leading": 16.0, "gaussian": 10.0}
LONG = 60.0  # seconds that are told beforehand
SLOW = 1e10  # operations per second that every machine has


def operations(layers: int, points: int, width: int, settings: MeasureConfig) -> float:
    """Of one piece of so many layers, of arrays."""
    families, narrow = settings.families, min(points, width)
    with_null = [name for name in families if "gaussian" in FAMILIES[name].nulls]
    drawn = bool(with_null) and "gaussian" in settings.nulls

    def own(names: Iterable[str]) -> float:
        return sum(DECOMPOSED.get(name, FAMILY.get(name, 0.0) * points / narrow) for name in names)

    searched = max((SEARCH.get(name, 0.0) for name in families), default=0.0)
    of_pairs = (1 + DRAWS * drawn) * searched + layers * sum(PAIRS.get(name, 0.0) for name in families)
    of_pairs += sum(MEASURED.get(name, 0.0) for name in families)
    alone = own(families) + drawn * (DECOMPOSED["gaussian"] + DRAWS * own(with_null))
    return 2.0 * layers * points * (points * max(width, SORTING) * of_pairs + width * narrow * alone)


def tell(layers: int, pieces: int, points: int, width: int, settings: MeasureConfig) -> None:
    """One line on stderr where all of it will take long."""
    work = pieces * operations(layers, points, width, settings)
    if work < LONG * SLOW or not processes.is_first():
        return
    if (taken := work / speed()) > LONG:
        of_pieces = f", in {pieces} pieces" if pieces > 1 else ""
        words = f"{layers} layer{'s' * (layers > 1)} of {points:,} points of width {width:,}{of_pieces}"
        print(f"measure: {words}: roughly {duration(taken)} on this machine", file=sys.stderr, flush=True)
