"""Put measures of similarity through grounded tests of the ReSi benchmark: similarity/*.csv.

    git clone https://github.com/mklabunde/resi RESI
    .venv-pretrained/bin/python -m pip install scikit-learn loguru einops
    PYTHONPATH=RESI .venv-pretrained/bin/python -m findings.scripts.resi TEXT RUNS NAME=MODEL …

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
- outputs.csv: decoders whose last layers differ more should predict more differently. Spearman's
  correlation of dissimilarity with three differences of two decoders' predictions, by ReSi's code:
  Jensen–Shannon divergence, disagreement, and difference of accuracy. Over all pairs, and over the
  pairs of one size.

Clouds have 1,000 points, none of them first in its window; agreement is over clouds without equal
points, monotonicity over every third layer where a model has more than 13. Written down before any
was read; outputs.csv after the others.
"""

import collections
import itertools
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
import scipy.stats
from repsim import measures
from repsim.benchmark import measure_quality_metrics as quality
from repsim.measures import nearest_neighbor, output_similarity

from anisoscope import api
from anisoscope.metrics import comparison, neighbors
from anisoscope.metrics.alignment import alignments
from anisoscope.models import transformer
from anisoscope.results import joined_files
from findings.scripts.packaged_model import open_packaged, read_text
from findings.scripts.shared_tables import RESULTS

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
    cka, aligned = comparison.ckas(x_PD, y_PE), alignments(x_PD, y_PE)
    both = (neighbors.nearest_neighbors(z, NEAREST) for z in (x_PD, y_PE))
    nearest = [comparison.select_nearest(found, NEAREST) for found in both]
    return {
        "CKA": cka.biased[0],
        "CKA, unbiased": cka.unbiased[0],
        "RSA": aligned.rsa[0],
        "Procrustes": aligned.procrustes[0],
        "overlap": comparison.nearest_overlap(*nearest),
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


def select_points(x_NWTD: np.ndarray) -> np.ndarray:
    """Select the same positions of every layer, at random, without the first of each window."""
    later_NPD = x_NWTD[:, :, 1:].reshape(len(x_NWTD), -1, x_NWTD.shape[-1])
    picks_P = np.random.default_rng(0).choice(later_NPD.shape[1], POINTS, replace=False)
    return np.asarray(later_NPD[:, picks_P])


class Run(NamedTuple):
    """The last checkpoint of a finished run at the selected positions."""

    group: str
    name: str
    layers_NPD: np.ndarray
    logits_PV: np.ndarray
    correct: float  # share of positions where the likeliest character is the next one


def read_runs(root: pathlib.Path) -> Iterator[Run]:
    """Yield each finished run of the ladder."""
    for path in sorted(path.parent for path in root.glob("*/*/checkpoints")):
        group, _, seed = path.name.partition("_weights_")
        run = api.open_run(path)
        if run.steps[-1] < run.config.train.steps:
            continue
        model = transformer.build(run.config.model, run.corpus.vocab_size, "float32")
        tokens_WT = run.windows(16)
        logits_WTV, activations = model.apply(run.params(run.steps[-1]), tokens_WT)
        logits_PV = select_points(np.array(logits_WTV)[None])[0]
        # the last position of a window has no next one here: -1 is never correct
        next_WT = np.pad(tokens_WT[:, 1:], ((0, 0), (0, 1)), constant_values=-1)
        next_P = select_points(next_WT[None, ..., None])[0, :, 0]
        right_P = logits_PV.argmax(axis=1)[next_P >= 0] == next_P[next_P >= 0]
        layers_NPD = select_points(np.array(activations.resid_LBTD))
        group = f"{group} {path.parent.name}"
        yield Run(group, f"{group}, seed {seed[:1] or 0}", layers_NPD, logits_PV, right_P.mean())


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
    counts = collections.Counter(group_M)
    groups = [group for group in counts if group.startswith(kind) and counts[group] > 1]
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


def read_outputs(pairs: Pairs, runs: Sequence[Run]) -> pd.DataFrame:
    """Correlate dissimilarity and the differences of predictions over pairs of decoders."""
    decoders = [n for n, run in enumerate(runs) if run.group.startswith("decoder")]
    chosen = [*itertools.combinations(decoders, 2)]
    differences = []
    for a, b in chosen:
        logits, correct = (runs[a].logits_PV, runs[b].logits_PV), (runs[a].correct, runs[b].correct)
        differences.append(
            {
                "divergence": output_similarity.JSD()(*logits),
                "disagreement": output_similarity.Disagreement()(*logits),
                "accuracy": output_similarity.AbsoluteAccDiff()(*correct),
                "one_size": runs[a].group == runs[b].group,
            }
        )
    frame = pd.DataFrame(differences).join(pd.DataFrame([pairs[pair] for pair in chosen]))
    rows = []
    for label, part in (("all", frame), ("one size", frame[frame.one_size])):
        for name in MEASURES:
            found = [
                -scipy.stats.spearmanr(part[name], part[difference])[0]
                for difference in ("divergence", "disagreement", "accuracy")
            ]
            rows.append((name, *found, len(part), label))
    return pd.DataFrame(
        rows, columns=["measure", "divergence", "disagreement", "accuracy", "pairs", "of"]
    )


def main(text: str, runs: str, *models: str) -> None:
    clouds = {}
    for name, place in (model.split("=") for model in models):
        packaged = open_packaged(place)
        tokens_WT = packaged.windows(read_text(text), True).probe.tokens_GWT[0]
        clouds[name] = select_points(packaged.read(tokens_WT)[0])
    own = list(read_runs(pathlib.Path(runs)))
    clouds |= {run.name: run.layers_NPD for run in own if len(run.layers_NPD) > 3}
    ladders, every = [], []
    for name, layers_NPD in clouds.items():
        layers_NPD = layers_NPD[:: -(-len(layers_NPD) // LAYERS)]
        pairs = compare_all(layers_NPD)
        every += pairs.values()
        ladders.append(read_monotonicity(pairs, len(layers_NPD)).assign(model=name))
        print(ladders[-1].round(3).to_string(index=False), flush=True)
    pairs = compare_all([run.layers_NPD[-1] for run in own])
    groups = [run.group for run in own]
    frame = pd.DataFrame([*every, *pairs.values()]).query("distinct")
    differences = {name: (frame[name] - frame[other]).abs().max() for name, other in SAME.items()}
    agreement = pd.Series(differences, name="largest_difference").rename_axis("measure")
    tables = {
        "agreement": agreement.reset_index().assign(pairs=len(frame)),
        "monotonicity": pd.concat(ladders),
        "groups": pd.concat([read_groups(pairs, groups, kind) for kind in ("", "decoder")]),
        "outputs": read_outputs(pairs, own),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, table in tables.items():
        joined_files.write_csv(table, FOLDER / f"{name}.csv")
        print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
