"""Measure the coverage of the 95 % intervals and the bias of the estimates: `make coverage`.

    python -m benchmarks.coverage [--draws 200] [--points 1024] [--clouds TEXT] [--families NAME …]

Each draw is a data set like a checkpoint's: G batches of P points in J folds, measured and
summarized by the package's own functions. There are two coverages: of the truth, which a biased
estimator misses, and of the estimator's expectation (its mean over all draws), which a correct
interval covers whatever the bias.
"""

import argparse
import functools
import os
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data.unigrams import BINS, LENGTHS
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.families import registry as families
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.leading_family import WITHOUT
from anisoscope.measurement.families.registry import coordinates, quantities
from anisoscope.measurement.intervals import LEVEL, estimate
from anisoscope.measurement.panel import MEASURED, Sample, panel
from anisoscope.measurement.resampling import Places, Types
from anisoscope.metrics import spectrum as spectral
from anisoscope.metrics.logit_lens import build_unembedding
from anisoscope.metrics.spectrum import Spectrum
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.coverage_rows import Row, overview, row_of, table
from benchmarks.rounds import hardware
from tests.zoo import WINDOW, ZOO, Member

BATCHES, FOLDS = 4, 8
SPECTRAL = {  # with what reads it off the spectrum of a population, which needs no correction
    "anisotropy": spectral.anisotropy,
    "participation_ratio": spectral.participation_ratio,
    "participation_ratio_corrected": spectral.participation_ratio,
    "effective_rank": spectral.effective_rank,
    "rankme_centered": spectral.rankme_centered,
    "stable_rank": spectral.stable_rank,
    "isoscore": spectral.isoscore,
    "isoscore_star": spectral.isoscore,
    "alpha_req": lambda spectrum: spectral.alpha_req(spectrum).exponent,
}
DIMENSIONS = ("twonn", "twonn_mle", "gride 1", "gride 8", "gride 64", "levina_bickel")
EXCESS = ("twonn excess", "gride 8 excess")  # over a Gaussian cloud of the same spectrum
FAMILIES = tuple(
    name for name, family in families.FAMILIES.items() if family.input_kind != "vectors"
)
SETTINGS = MeasureConfig(folds=FOLDS, families=FAMILIES, nulls=("gaussian",))
SHOWN = {
    "neighbors": (1, 8, 64),
    "top": (1,),
    "quantile": (0.05, 0.5, 0.95),
    "without": WITHOUT,
    "ngram": LENGTHS[:1],
    "frequency": BINS[-1:],
    "threshold": (0.1, 0.3),
    "ratio": (3,),
    "from_position": (1, 4),
}  # of the coordinates of a quantity
# of the cloud, where the output is the cloud under noise
READOUT = set(families.FAMILIES["logit_lens"].quantities)
TWO_LAYER_QUANTITIES = {  # read of a second layer, the cloud under noise
    name
    for family in ("linearity", "imbalance", "alignment")
    for name in families.FAMILIES[family].quantities
}
# as `_last`
SAME = {f"{kind}_{other}" for kind in comparison_family.KINDS for other in ("layers", "previous")}


def parts_of(quantity: str) -> dict[str, tuple[int, ...]]:
    """Return the places of values: {"twonn": ()}, or {"gride 1": (0,), …} by coordinate."""
    for dim in SHOWN.keys() & set(quantities()[quantity].dims):
        return {f"{quantity} {shown}": (coordinates()[dim].index(shown),) for shown in SHOWN[dim]}
    return {quantity: ()}


METRICS = (  # all that have resamples
    *(
        name
        for quantity, about in quantities().items()
        if about.resampling and quantity not in SAME
        for name in parts_of(quantity)
    ),
    *EXCESS,
)
# shares of the types that points are of, by lot
LETTERS = 0.8 ** np.arange(12) / (0.8 ** np.arange(12)).sum()
HEAD = 16  # coordinates of a query, the first ones; of a key, the next; in windows


@functools.partial(jax.jit, static_argnames="metrics")
def measure(cloud_GPD: jax.Array, key: jax.Array, metrics: tuple[str, ...]) -> dict[str, jax.Array]:
    """Measure the requested quantities of every batch, (G, R), and GRIDE at all scales.

    The cloud is one layer, compared with itself under noise, as one checkpoint with another; its
    first coordinates are queries, the next ones keys, in windows of consecutive points under a
    causal mask. Of TWO_LAYER_QUANTITIES and READOUT the cloud under noise is a second layer, and an unembedding
    for LETTERS is drawn once.
    """
    layers = 2 if (TWO_LAYER_QUANTITIES | READOUT) & set(metrics) else 1
    unembedding_DV = np.random.default_rng(0).standard_normal((cloud_GPD.shape[-1], LETTERS.size))
    read = build_unembedding(unembedding_DV, "layer")

    def measure_batch(batch: tuple[jax.Array, jax.Array]) -> dict[str, jax.Array]:
        cloud_PD, key = batch[0].astype(jnp.float32), batch[1]
        noise_PD = jax.random.normal(key, cloud_PD.shape) * cloud_PD.std(axis=0).mean() / 2
        q, k = (
            cloud_PD[:, part * HEAD : (part + 1) * HEAD].reshape(1, -1, WINDOW, 1, HEAD)
            for part in (0, 1)
        )
        heads = Heads(q, k, jnp.arange(len(cloud_PD)), jnp.tril(jnp.ones((WINDOW, WINDOW), bool)))
        places = Places(*jnp.divmod(jnp.arange(len(cloud_PD)), WINDOW))
        clouds_LPD = jnp.stack([cloud_PD, cloud_PD + noise_PD])
        target_P = jax.random.choice(
            jax.random.fold_in(key, 1), LETTERS.size, (len(cloud_PD),), p=LETTERS
        )
        sample = Sample(clouds_LPD[:layers], heads, places, types_of(len(cloud_PD)), read, target_P)
        found = panel(
            {MEASURED: sample}, {"last": clouds_LPD[1:].repeat(layers, axis=0)}, SETTINGS, key
        )
        null = {f"{name} null": value for name, value in split_indexed(found["gaussian"]).items()}
        known = split_indexed(found[MEASURED]) | null
        nulls = {name.replace("excess", "null") for name in metrics if name in EXCESS}
        names = nulls | {name.removesuffix(" excess") for name in metrics}
        return {name: known[name] for name in names}

    return jax.lax.map(measure_batch, (cloud_GPD, jax.random.split(key, len(cloud_GPD))))


def types_of(points: int) -> Types:
    """Return the types of the points, the same for every draw of any length."""
    letter_P = np.random.default_rng(0).choice(LETTERS.size, points, p=LETTERS)
    rows = [
        np.tile(x_P, (len(LENGTHS), 1)) for x_P in (letter_P, np.float32(np.log(LETTERS))[letter_P])
    ]
    return jax.tree.map(jnp.asarray, Types(*rows, letter_P % len(BINS)))


def flat(quantity: str, value: jax.Array) -> jax.Array:
    """Drop the single layer, or block and head.

    For TWO_LAYER_QUANTITIES take the second layer, compared with the first.
    """
    sides = {"layer", "other_layer", "block", "head"} & set(quantities()[quantity].dims)
    if quantity in TWO_LAYER_QUANTITIES:
        return value[0, -1] if "other_layer" in sides else value[-1]
    return value[(0,) * len(sides)]


def split_indexed(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Split the measured quantities into named numbers."""
    return {
        name: flat(quantity, value)[at]
        for quantity, value in values.items()
        for name, at in parts_of(quantity).items()
    }


def truths(member: Member) -> dict[str, float]:
    """Return the population's spectrum, as the package reads it, and its dimension.

    The truth of a similarity is unknown.
    """
    eigenvalues_D = jnp.asarray(member.eigenvalues, jnp.float32)
    width, unused = jnp.float32(eigenvalues_D.size), jnp.float32(0)
    population = Spectrum(
        eigenvalues_D, jnp.zeros_like(eigenvalues_D), unused, unused, width, unused
    )
    known = {name: float(read(population)) for name, read in SPECTRAL.items()}
    dimension_names = (*DIMENSIONS, "twonn_bayes", "twonn_microscope")
    return known | dict.fromkeys(dimension_names, member.dimension)


def score(
    metric: str,
    cloud: str,
    truth: float,
    values_GRN: np.ndarray,
    points: int,
    null_GRN: np.ndarray | None = None,
) -> Row:
    """Compute the coverage over N draws of G batches with R replicates.

    With a null model's values, it is the coverage of the excess.
    """
    summary = estimate(values_GRN, quantities()[metric.split()[0]].resampling, null_GRN)
    return row_of(metric, cloud, truth, summary, points)


def run(name: str, member: Member, metrics: tuple[str, ...], points: int, draws: int) -> list[Row]:
    """Make the rows of a cloud; draw n is a function of n alone."""

    def measure_draw(draw: int) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(draw)
        cloud_GPD = np.stack([member.draw(generator, points) for _ in range(BATCHES)])
        programs = [
            tuple(name for name in metrics if (name in TWO_LAYER_QUANTITIES | READOUT) == two)
            for two in (False, True)
        ]
        values = [measure(cloud_GPD, jax.random.key(draw), names) for names in programs if names]
        return jax.tree.map(np.asarray, functools.reduce(dict.__or__, values))

    # most of a search for many neighbors runs on one core
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(
            tqdm(
                pool.map(measure_draw, range(draws)), f"{name}, {points} points", draws, leave=False
            )
        )
    known = truths(member)

    def all_draws(name: str) -> np.ndarray:
        return np.stack([values[name] for values in found], axis=-1)

    rows = []
    for metric in metrics:
        null = all_draws(metric.replace("excess", "null")) if metric in EXCESS else None
        values = all_draws(metric.removesuffix(" excess"))
        rows.append(score(metric, name, known.get(metric, np.nan), values, points, null))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200, help="data sets for each cloud")
    parser.add_argument("--points", type=int, default=1024, help="of a batch of the zoo")
    parser.add_argument(
        "--clouds", default="", help="only those whose name has this text, as '64', 'copies'"
    )
    parser.add_argument(
        "--families", nargs="+", choices=FAMILIES, default=FAMILIES, help="only quantities of these"
    )
    options = parser.parse_args()
    requested = {
        name for family in options.families for name in families.FAMILIES[family].quantities
    }
    chosen = tuple(name for name in METRICS if name.split()[0] in requested)
    begin = time.perf_counter()
    members = {name: member for name, member in ZOO.items() if options.clouds in name}
    if not members:
        parser.error(
            f"--clouds: no cloud has {options.clouds!r} in its name; there are {', '.join(ZOO)}"
        )
    zoo = [
        row
        for name, member in members.items()
        for row in run(name, member, chosen, options.points, options.draws)
    ]
    seconds, machine = time.perf_counter() - begin, hardware(jax.devices()[0].device_kind)
    print(
        f"Nominal {LEVEL:.0%}, {BATCHES} batches in {FOLDS} folds, {options.draws} draws of each cloud of the zoo"
    )
    print(f"{seconds:.0f} s on {machine}\n\n{overview(zoo)}\n")
    print(table(sorted(zoo, key=lambda row: METRICS.index(row.metric))))


if __name__ == "__main__":
    keep(CACHE)
    main()
