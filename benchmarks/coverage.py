"""Measure the coverage of the 95 % intervals and the bias of the estimates: `make coverage`.

    python -m benchmarks.coverage [--part zoo|clusters|null|compare] [--draws 200] [--families NAME …]

Of the zoo each draw is a data set like a checkpoint's: G batches of P points in J folds, measured
and summarized by the package's own functions. There are two coverages: of the truth, which a biased
estimator misses, and of the estimator's expectation (its mean over all draws), which a correct
interval covers whatever the bias. `clusters` has unequal clusters, and the ideal half-width is 1.96
deviations over draws; of the Gaussian clouds of `null`, and of the independent models of `compare`,
the excess to be held is 0.
"""

import argparse
import itertools
from collections.abc import Callable

import jax
import numpy as np
import pandas as pd
from tqdm import tqdm

from anisoscope import compare, measure
from anisoscope.config.measure_config import FAMILY_NAMES, MeasureConfig
from anisoscope.engine.intervals import estimate
from anisoscope.metrics.frequency import BINS, LENGTHS
from anisoscope.metrics.logit_lens import build_unembedding
from anisoscope.metrics.quantity import MEASURED
from anisoscope.metrics.registry import coordinates, find_family, quantities
from anisoscope.metrics.resampling import Types
from anisoscope.sources.activations import BatchActivations, measure_batch
from anisoscope.utils.compiled import CACHE, keep
from tests.zoo import WINDOW, ZOO, Member

BATCHES, FOLDS, POINTS = 4, 8, 1024
LOW, HIGH = 0.92, 0.98  # what a nominal 95 % may measure
CHOICES = FAMILY_NAMES
LETTERS = 0.8 ** np.arange(12) / (0.8 ** np.arange(12)).sum()  # shares of the types of points
HEAD = 16  # coordinates of a query, the first ones; of a key, the next; in windows
WIDTH = 8  # of clusters
NUMBERS = 8, 16, 40  # of clusters of 1 to 200 points
PAIRED = "cka_layers", "neighbor_overlap_layers", "rsa_layers", "procrustes_layers"
SPREAD_D = np.arange(1, WIDTH + 1) ** -0.5
LAYOUTS = (
    (8, 4, 200),
    (40, 4, 200),
    (16, 1, 100),
    (24, 32, 32),
)  # clusters, their least and largest
SHAPES = ((512, 32, 0.75), (256, 384, 0.5), (128, 256, 0.25), (1024, 16, 0.5), (200, 256, 0.75))


def make_measure(families: tuple[str, ...]) -> Callable:
    """Make the function that measures every batch of a draw: {sample: {quantity: (G, …, R)}}.

    A cloud is a layer, and itself under noise is the next one, as of another checkpoint and of the
    model's output. Its first coordinates are queries and the next ones keys, in windows of
    consecutive points under a causal mask.
    """

    def measure_cloud(cloud_PD: np.ndarray, draw: int, g: int) -> dict:
        settings = MeasureConfig(
            points=POINTS, batches=BATCHES, folds=FOLDS, families=families, nulls=("gaussian",),
            seed=draw,
        )  # fmt: skip
        points, noise = POINTS, np.random.default_rng((draw, g))
        noise_PD = noise.standard_normal(cloud_PD.shape) * cloud_PD.std(axis=0).mean() / 2
        clouds_LPD = np.float32([cloud_PD, cloud_PD + noise_PD])
        generator = np.random.default_rng(0)
        letter_P = generator.choice(LETTERS.size, points, p=LETTERS)
        unembedding_DV = generator.standard_normal((cloud_PD.shape[1], LETTERS.size))
        how = build_unembedding(unembedding_DV, "layer")
        log_frequency_P = np.float32(np.log(LETTERS))[letter_P]
        rows = (np.tile(x_P, (len(LENGTHS), 1)) for x_P in (letter_P, log_frequency_P))
        types_Z = Types(*(x[None] for x in (*rows, letter_P % len(BINS))))
        split = (1, -1, WINDOW, 1, HEAD)
        q, k = (cloud_PD[:, at : at + HEAD].reshape(split) for at in (0, HEAD))
        resid_LBTD = clouds_LPD.reshape(2, -1, WINDOW, clouds_LPD.shape[-1])
        target_ZBT = letter_P.reshape(1, -1, WINDOW)
        read = BatchActivations(
            resid_LBTD[None], q[None], k[None], how, target_ZBT, types_Z=types_Z
        )
        last = {"last": resid_LBTD[1:].repeat(2, axis=0)}
        visible_STT = np.tril(np.ones((1, WINDOW, WINDOW), bool))
        found = measure_batch(g, read, last, np.arange(points)[None], visible_STT, settings)
        return jax.tree.map(lambda value: value[0, 0], found)

    def measure_draw(clouds_GPD: np.ndarray, draw: int) -> dict:
        found = [measure_cloud(cloud_PD, draw, g) for g, cloud_PD in enumerate(clouds_GPD)]
        return jax.tree.map(lambda *values: np.stack(values), *found)

    return measure_draw


def split_values(quantity: str, value: np.ndarray) -> dict[str, np.ndarray]:
    """Name the numbers of a quantity, (…, R): of the cloud, or of it and its second layer."""
    labels = [""]
    for dim in quantities()[quantity].dims:
        if dim in coordinates():
            labels = [f" {label}" for label in coordinates()[dim]]
            continue
        second = dim == "other_layer" or find_family(quantity) == "linearity"
        value = value[-1 if second else 0]
    return dict(
        zip([quantity + label for label in labels], value.reshape(len(labels), -1), strict=True)
    )


def truths(member: Member) -> dict[str, float]:
    """Compute what is known of the population: readings of its spectrum, and its dimension."""
    share_D = member.eigenvalues / member.eigenvalues.sum()
    share_E = share_D[share_D > 1e-12]
    participation = 1 / np.square(share_D).sum()
    root_E = np.sqrt(share_E) / np.sqrt(share_E).sum()
    known = {
        "anisotropy": share_D.max(),
        "stable_rank": 1 / share_D.max(),
        "effective_rank": np.exp(-(share_E * np.log(share_E)).sum()),
        "rankme_centered": np.exp(-(root_E * np.log(root_E)).sum()),
        "isoscore": (participation - 1) / (share_D.size - 1),
        "isoscore_star": (participation - 1) / (share_D.size - 1),
    }
    known |= dict.fromkeys(("participation_ratio", "participation_ratio_corrected"), participation)
    dimensions = (
        "twonn",
        "twonn_mle",
        "twonn_bayes",
        "twonn_microscope",
        "levina_bickel",
        "gride 1",
    )
    return known | dict.fromkeys(dimensions, member.dimension)


def score(
    name: str, values_GRN: np.ndarray, truth: float, null_GRN: np.ndarray | None = None
) -> dict[str, object]:
    """Compute the coverage over N draws of G batches with R replicates, of an excess with a null."""
    found = estimate(values_GRN, quantities()[name.split()[0]].resampling, null_GRN)
    mean_N, _, low_N, high_N = (value_N[~np.isnan(found.mean)] for value_N in found)
    row: dict[str, object] = {"metric": name, "truth": truth, "draws": len(mean_N)}
    if len(mean_N) == 0 or np.isnan(low_N).any():
        return row | {"verdict": "no value" if len(mean_N) == 0 else "no interval"}
    held, truth_held = (
        ((low_N <= value) & (value <= high_N)).mean() for value in (mean_N.mean(), truth)
    )
    row |= {"mean": mean_N.mean(), "bias": mean_N.mean() / truth - 1, "expectation held": held}
    row |= {"truth held": np.nan if np.isnan(truth) else truth_held}
    verdict = "too narrow" if held < LOW else "too wide" if held > HIGH else ""
    return row | {"half-width": (high_N - low_N).mean() / 2, "verdict": verdict}


def cover_zoo(families: tuple[str, ...], draws: int, members: dict[str, Member]) -> pd.DataFrame:
    program, rows = make_measure(families), []
    for cloud, member in members.items():
        found = {MEASURED: [], "gaussian": []}
        for draw in tqdm(range(draws), cloud, leave=False):
            generator = np.random.default_rng(draw)
            clouds_GPD = np.stack([member.draw(generator, POINTS) for _ in range(BATCHES)])
            values = program(np.float32(clouds_GPD), draw)
            for sample, by_draw in found.items():
                by_draw.append(values.get(sample, {}))
        known = truths(member)
        for quantity in found[MEASURED][0]:
            if not quantities()[quantity].resampling:
                continue
            named = {
                sample: [
                    [split_values(quantity, batch) for batch in values[quantity]]
                    for values in by_draw
                ]
                for sample, by_draw in found.items()
                if quantity in by_draw[0]
            }
            for name in named[MEASURED][0][0]:
                values_GRN, *null = (
                    np.moveaxis([[batch[name] for batch in draw] for draw in by_draw], 0, -1)
                    for by_draw in named.values()
                )
                rows.append({"cloud": cloud} | score(name, values_GRN, known.get(name, np.nan)))
                if null:
                    excess = score(name, values_GRN, np.nan, null[0])
                    rows.append({"cloud": cloud} | excess | {"metric": f"{name} excess"})
    return pd.DataFrame(rows)


def draw_clusters(process: str, generator: np.random.Generator, size_L: np.ndarray) -> np.ndarray:
    """Draw clusters with centers of their own (shifted), also spreads (scaled), or chains.

    A point of a chain correlates by 0.9 with the one before.
    """
    noise_PD = generator.normal(size=(size_L.sum(), WIDTH))
    if process == "chains":
        first_P = np.isin(np.arange(len(noise_PD)), np.cumsum(size_L) - size_L)
        for at in np.flatnonzero(~first_P):
            noise_PD[at] = 0.9 * noise_PD[at - 1] + (1 - 0.9**2) ** 0.5 * noise_PD[at]
        return noise_PD * SPREAD_D
    center_LD = generator.normal(size=(size_L.size, WIDTH)) * (0.7 if process == "shifted" else 0.5)
    scale_L1 = np.exp(0.3 * generator.normal(size=(size_L.size, 1)) * (process == "scaled"))
    return (
        center_LD.repeat(size_L, axis=0) + noise_PD * scale_L1.repeat(size_L, axis=0)
    ) * SPREAD_D


def cover_clusters(draws: int) -> pd.DataFrame:
    """Draws are layers of one array: one program measures them all; pairs of layers are compared."""
    rows = []
    for process, clusters in itertools.product(("shifted", "chains", "scaled"), NUMBERS):
        size_L = np.random.default_rng(7).integers(1, 201, clusters)
        if process == "shifted":
            size_L = np.geomspace(1, 200, clusters).round().astype(int)
        label_P = np.arange(size_L.size).repeat(size_L)
        generators = [np.random.default_rng(draw) for draw in range(draws)]
        clouds = [draw_clusters(process, generator, size_L) for generator in generators]
        tables = [measure(clouds, label_P, families=("spectrum", "dimension"), nulls=())]
        for cloud_PD, generator in zip(clouds, generators, strict=True):
            pair = cloud_PD, cloud_PD + generator.normal(size=cloud_PD.shape) * SPREAD_D / 2
            families = ("comparison", "alignment")
            compared = measure([*pair], label_P, families=families, nulls=(), quiet=True)
            tables.append(compared.isel(layer=[0], other_layer=1))
        for name in ("anisotropy", "participation_ratio", "twonn", *PAIRED):
            read = [table for table in tables if name in table]
            ends = ("mean", "low", "high")
            mean, low, high = (
                np.concatenate([table[name].sel(statistic=end).values for table in read])
                for end in ends
            )
            held = ((low <= mean.mean()) & (high >= mean.mean())).mean()
            width = (high - low).mean() / 2 / (1.96 * mean.std(ddof=1))
            attributes = read[0].attrs
            kind = "sections" if name in ("twonn", "neighbor_overlap_layers") else "jackknife"
            freedom = attributes.get(f"degrees_of_freedom_{kind}", np.nan)
            rows.append((process, clusters, name, freedom, held, width))
    columns = ("process", "clusters", "quantity", "freedom", "held", "width over ideal")
    return pd.DataFrame(rows, columns=columns)


def cover_null(_: int) -> pd.DataFrame:
    rows = []
    for points, width, decay in SHAPES:
        spread_D = np.arange(1, width + 1) ** -decay
        clouds = np.random.default_rng(1).normal(size=(60, points, width)) * spread_D
        table = measure([*clouds], families=("dimension", "hubness", "local"), nulls="gaussian")
        for name in ("twonn", "antihub_share", "local_participation_ratio"):
            excess = table[f"{name}_excess"].sel(null="gaussian")
            mean, low, high = (excess.sel(statistic=end).values for end in ("mean", "low", "high"))
            error, held = mean.std(ddof=1) / len(mean) ** 0.5, ((low <= 0) & (high >= 0)).mean()
            rows.append((f"{points} × {width}, i^-{2 * decay:g}", name, mean.mean(), error, held))
    return pd.DataFrame(rows, columns=["clouds", "quantity", "mean excess", "error", "0 held"])


def cover_compare(draws: int) -> pd.DataFrame:
    """Compare models that are independent of each other; rows are in random order."""
    rows = []
    for clusters, least, most in LAYOUTS:
        size_K, found = np.geomspace(least, most, clusters).round().astype(int), []
        label_P = np.arange(clusters).repeat(size_K)
        for draw in tqdm(range(draws), f"{clusters} of {least} to {most}", leave=False):
            generator = np.random.default_rng(draw)
            a_PD, b_PD = (
                (
                    generator.normal(size=(clusters, 8))[label_P]
                    + generator.normal(size=(len(label_P), 8))
                )
                @ generator.normal(size=(8, width))
                for width in (12, 10)
            )
            order_P = generator.permutation(len(label_P))
            table = compare(a_PD[order_P], b_PD[order_P], label_P[order_P], seed=draw, quiet=True)
            found.append(table.isel(layer=0, other_layer=0, null=0))
        for name in ("cka", "cka_unbiased", "neighbor_overlap"):
            mean, low, high = (
                np.array([table[f"{name}_excess"].sel(statistic=end).item() for table in found])
                for end in ("mean", "low", "high")
            )
            error, held = mean.std(ddof=1) / draws**0.5, ((low <= 0) & (high >= 0)).mean()
            rows.append((f"{clusters} of {least} to {most}", name, mean.mean(), error, held))
    return pd.DataFrame(rows, columns=["clusters", "quantity", "mean excess", "error", "0 held"])


PARTS = {"clusters": cover_clusters, "null": cover_null, "compare": cover_compare}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("zoo", *PARTS), default="zoo")
    parser.add_argument("--draws", type=int, default=200, help="data sets for each cloud")
    parser.add_argument("--clouds", default="", help="only those whose name has this text")
    parser.add_argument("--families", nargs="+", choices=CHOICES, default=CHOICES)
    options = parser.parse_args()
    if options.part == "zoo":
        members = {name: member for name, member in ZOO.items() if options.clouds in name}
        rows = cover_zoo(tuple(options.families), options.draws, members)
    else:
        rows = PARTS[options.part](options.draws)
    print(rows.to_string(index=False, na_rep="", float_format="%.4g"))


if __name__ == "__main__":
    keep(CACHE)
    main()
