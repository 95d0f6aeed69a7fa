"""Put measures of similarity through grounded tests of the ReSi benchmark: similarity/*.csv.

    git clone https://github.com/mklabunde/resi RESI
    .venv-pretrained/bin/python -m pip install scikit-learn loguru einops
    PYTHONPATH=RESI .venv-pretrained/bin/python -m dev.resi TEXT RUNS NAME=MODEL …

RUNS has a folder for each size of `experiments/scale_ladder.py`; MODEL is a folder or a .gguf file.
ReSi (Klabunde et al. 2025) tests a measure on models where the answer is known. Its own models take
hundreds of gigabytes, so these are others:

- agreement.csv: the largest difference from ReSi's code where both have one definition.
- monotonicity.csv: of two layers of a model, the nearer one should be the more similar one.
  Violations: share of triples of layers where it is not. Correlation: Spearman's, of dissimilarity
  and distance in layers, mean over layers and directions.
- groups.csv: last layers of runs that differ in their seed alone should be more similar than those
  of other sizes and objectives, of all groups and of decoders alone. Violations and AUPRC, by
  ReSi's code, mean over groups; `chance` has those of similarities in random order.

Clouds have 1,000 points, none of them first in its window; agreement is over clouds without equal
points, monotonicity over every third layer where a model has more than 13. Written down before any
was read.
"""

import itertools
import pathlib
import sys
from collections.abc import Iterator, Sequence

import jax
import numpy as np
import pandas as pd
import scipy.stats
from repsim import measures
from repsim.benchmark import measure_quality_metrics as quality
from repsim.measures import nearest_neighbor

from anisoscope import api
from anisoscope.metrics import cloud_pairs, comparison, neighbors
from dev.packaged_model import open_packaged, read_text
from dev.shared_tables import RESULTS

POINTS, LAYERS, NEAREST = 1000, 13, 10
CHANCE, DRAWS = "chance", 200
MEASURES = ["CKA", "CKA, unbiased", "RSA", "Procrustes", "overlap"]
MEASURES += ["ReSi CKA", "ReSi RSA", "ReSi RSA of distances", "ReSi Procrustes", "ReSi Jaccard"]
SAME = {"CKA": "ReSi CKA", "Procrustes": "ReSi Procrustes", "overlap": "ReSi overlap"}
FOLDER = RESULTS / "similarity"
Pairs = dict[tuple[int, int], dict[str, float]]


@jax.jit
def own_measures(x_PD: jax.Array, y_PE: jax.Array) -> dict[str, jax.Array]:
    """Compute the measures of this project."""
    cka, aligned = comparison.ckas(x_PD, y_PE), cloud_pairs.alignments(x_PD, y_PE)
    both = (neighbors.nearest_neighbors(z, NEAREST) for z in (x_PD, y_PE))
    nearest = [comparison.select_nearest(found, NEAREST) for found in both]
    return {
        "CKA": cka.biased[0],
        "CKA, unbiased": cka.unbiased[0],
        "RSA": aligned.rsa[0],
        "Procrustes": aligned.procrustes[0],
        "overlap": comparison.neighbor_overlap(*nearest),
    }


def resi_measures(x_PD: np.ndarray, y_PE: np.ndarray) -> dict[str, float]:
    """Compute ReSi's; Procrustes as |X'Y|_* of unit norms, so that larger is more similar."""
    distance = measures.OrthogonalProcrustesCenteredAndNormalized()(x_PD, y_PE, "nd")
    near = [nearest_neighbor.top_k_neighbors(z, NEAREST, "euclidean", 1) for z in (x_PD, y_PE)]
    shared_P = [len({*a} & {*b}) / NEAREST for a, b in zip(*near, strict=True)]
    return {
        "ReSi CKA": measures.CKA()(x_PD, y_PE, "nd"),
        "ReSi RSA": measures.RSA()(x_PD, y_PE, "nd"),
        "ReSi RSA of distances": measures.RSA().sim_func(x_PD, y_PE, "nd", inner="euclidean"),
        "ReSi Procrustes": 1 - distance**2 / 2,
        "ReSi Jaccard": measures.JaccardSimilarity()(x_PD, y_PE, "nd"),
        "ReSi overlap": float(np.mean(shared_P)),
    }


def compare_all(clouds: Sequence[np.ndarray]) -> Pairs:
    """Compare all pairs of clouds by every measure; `distinct` if neither has two equal points."""
    distinct = [len(np.unique(cloud_PD, axis=0)) == POINTS for cloud_PD in clouds]
    pairs = {}
    for n, m in itertools.combinations(range(len(clouds)), 2):
        own = {name: float(x) for name, x in own_measures(clouds[n], clouds[m]).items()}
        resi = resi_measures(*(clouds[i].astype(np.float64) for i in (n, m)))
        pairs[n, m] = own | resi | {"distinct": distinct[n] and distinct[m]}
    return pairs


def select_points(resid_NWTD: np.ndarray) -> np.ndarray:
    """Select the same positions of every layer, at random, without the first of each window."""
    later_NPD = resid_NWTD[:, :, 1:].reshape(len(resid_NWTD), -1, resid_NWTD.shape[-1])
    picks_P = np.random.default_rng(0).choice(later_NPD.shape[1], POINTS, replace=False)
    return np.asarray(later_NPD[:, picks_P])


def read_runs(root: pathlib.Path) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield group, name and layers of the last checkpoint of each finished run."""
    for path in sorted(root.glob("*/*_weights_*/")):
        group = f"{path.name.split('_')[0]} {path.parent.name}"
        run = api.open_run(path)
        if run.steps[-1] < run.config.train.steps:
            continue
        resid_NWTD = run.vectors(run.params(run.steps[-1]), run.windows(16))
        yield group, f"{group}, seed {path.name.split('_')[2]}", select_points(np.array(resid_NWTD))


def read_monotonicity(pairs: Pairs, layers: int) -> pd.DataFrame:
    """Read violations and correlation of each measure off the similarities of pairs of layers."""
    rows = []
    for name in MEASURES:
        violations, correlations = [], []
        for origin in range(layers):
            for others in (range(origin + 1, layers), range(origin - 1, -1, -1)):
                similar = [pairs[min(origin, n), max(origin, n)][name] for n in others]
                violations += [near < far for near, far in itertools.combinations(similar, 2)]
                if len(similar) > 1:
                    correlations.append(-scipy.stats.spearmanr(similar, range(len(similar)))[0])
        rows.append((name, np.mean(violations), len(violations), np.mean(correlations)))
    return pd.DataFrame(rows, columns=["measure", "violations", "triples", "correlation"])


def read_groups(pairs: Pairs, group_M: list[str], kind: str) -> pd.DataFrame:
    """Read violations and AUPRC of each measure off the similarities of pairs of runs of a kind."""
    groups = [group for group in dict.fromkeys(group_M) if group.startswith(kind)]
    pairs = {ab: x for ab, x in pairs.items() if {group_M[i] for i in ab} <= {*groups}}
    rng, rows = np.random.default_rng(0), []
    for name in [*MEASURES, *[CHANCE] * DRAWS]:
        scores = []
        value = dict(zip(pairs, rng.random(len(pairs)), strict=True))
        value = {ab: x[name] for ab, x in pairs.items()} if name != CHANCE else value
        for group in groups:
            inside, across = [], []
            for (a, b), similarity in value.items():
                members = (group_M[a] == group) + (group_M[b] == group)
                if members:
                    (inside if members == 2 else across).append(similarity)
            scores.append(
                [f(inside, across, True) for f in (quality.violation_rate, quality.auprc)]
            )
        rows.append((name, *np.mean(scores, axis=0)))
    table = pd.DataFrame(rows, columns=["measure", "violations", "auprc"])
    means = table.groupby("measure", sort=False).mean().reset_index()
    return means.assign(groups=len(groups), of=kind or "all")


def main(text: str, runs: str, *models: str) -> None:
    clouds = {}
    for name, place in (model.split("=") for model in models):
        packaged = open_packaged(place)
        tokens_WT = packaged.windows(read_text(text), True).probe.tokens_GWT[0]
        clouds[name] = select_points(packaged.read(tokens_WT)[0])
    own = list(read_runs(pathlib.Path(runs)))
    clouds |= {name: layers_NPD for _, name, layers_NPD in own if len(layers_NPD) > 3}
    ladders, every = [], []
    for name, layers_NPD in clouds.items():
        layers_NPD = layers_NPD[:: -(-len(layers_NPD) // LAYERS)]
        pairs = compare_all(layers_NPD)
        every += pairs.values()
        ladders.append(read_monotonicity(pairs, len(layers_NPD)).assign(model=name))
        print(ladders[-1].round(3).to_string(index=False), flush=True)
    groups = [group for group, _, _ in own]
    pairs = compare_all([layers_NPD[-1] for _, _, layers_NPD in own])
    frame = pd.DataFrame([*every, *pairs.values()]).query("distinct")
    differences = {name: (frame[name] - frame[other]).abs().max() for name, other in SAME.items()}
    agreement = pd.Series(differences, name="largest_difference").rename_axis("measure")
    tables = {
        "agreement": agreement.reset_index().assign(pairs=len(frame)),
        "monotonicity": pd.concat(ladders),
        "groups": pd.concat([read_groups(pairs, groups, kind) for kind in ("", "decoder")]),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, table in tables.items():
        table.to_csv(FOLDER / f"{name}.csv", index=False, float_format="%.6g")
        print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
