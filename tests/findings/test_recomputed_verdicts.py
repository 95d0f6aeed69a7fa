"""Every row of findings/tables/verdicts.csv that a seed's number stands behind, computed again.

Independent of anisoscope/analysis: NumPy and the committed tables, with a formula for each claim.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.program import ROOT

RESULTS = ROOT / "findings" / "tables"
TABLE = pd.read_csv(RESULTS / "verdicts.csv", keep_default_na=False, na_values=[""])
CLAIMS = TABLE[TABLE.paper != "primary contrast"].reset_index(drop=True)
CONTRASTS = TABLE[TABLE.paper == "primary contrast"]
COLUMNS = {  # of runs.csv, a difference or ratio where the claim is of more than a column
    "decoder_bell": lambda r: r.bell_blocks,
    "decoder_bell_with_embedding": lambda r: r.bell_with_embedding,
    "flat_encoder": lambda r: r.std_over_layers,
    "growth": lambda r: r.growth,
    "stabilization": lambda r: r.drop_from_peak,
    "expansion_own_rule": lambda r: r.expansion_microscope,
    "compression_own_rule": lambda r: r.compression_microscope,
    "expansion_twonn": lambda r: r.expansion,
    "compression_twonn": lambda r: r.compression,
    "characters_are_anisotropic": lambda r: r.mean_cosine,
    "cosine_grows": lambda r: r.cosine_growth,
    "drift_grows": lambda r: r.drift_growth,
    "relative_drift_grows": lambda r: np.log2(
        np.sqrt(r.mean_cosine / (r.mean_cosine - r.cosine_growth))
    ),
    "queries_and_keys_drift_in_parallel": lambda r: r.alignment_growth,
    "attention_sharpens": lambda r: r.entropy_decrease,
    "trajectories_straighten": lambda r: r.straightening_blocks,
    "trajectories_straighten_from_embedding": lambda r: r.straightening_from_embedding,
    "layers_are_nearly_linear": lambda r: 1 - r.last_linearity,
    "residual_makes_linear": lambda r: r.last_linearity - r.last_linearity_update,
    "entropy_has_a_valley": lambda r: -r.entropy_valley,
}
PAIRS = {
    "decoder_more_anisotropic": "last_anisotropy",
    "encoder_flatter_than_decoder": "std_over_layers",
}
MODELS = {
    "cosine_follows_drift_over_models": ("mean_cosine", "drift"),
    "sharpening_follows_drift": ("entropy_decrease", "drift_growth"),
}
MATCHED = ("mask_makes_growth", "objective_makes_growth", "common_query_makes_anisotropy")
SIGNS = {
    *("flat_encoder", "stabilization", "cosine_follows_drift_over_layers"),
    *("expansion_own_rule", "compression_own_rule", "expansion_twonn", "compression_twonn"),
}
ABSENCES = {"flat_encoder", "stabilization", "layers_are_nearly_linear"}


def read(experiment, name):
    return pd.read_csv(RESULTS / experiment / name, dtype={"condition": str, "run": str})


def gradients(claim, table):
    """The claim's number of one run: means over layers of its steps."""
    e, c = (table.pivot(index="step", columns="layer", values=x) for x in ("energy", "control_energy"))  # fmt: skip
    last = table[table.step == table.step.max()]
    early = e[(e.index >= 1) & (e.index <= 0.3 * e.index[-1])].to_numpy().mean()
    share = (1 / (1 + (1 - e) / c)).iloc[-1].mean()  # k / D of c = (1 − e) k / (D − k)
    log_ratio = np.log2(e / c).mean(axis=1)
    return {
        "gradient_in_activation_subspace": (e - c).iloc[-1].mean(),
        "gradient_beyond_random_subspaces": e.iloc[-1].mean() - share,
        "gradient_beyond_variance": (last.energy - last.variance).mean(),
        "gradient_energy_emerges_early": early - e.loc[0].mean(),
        "gradient_energy_persists": e.iloc[-1].mean() - e.loc[0].mean(),
        "early_gradients_more_concentrated": early - e.iloc[-1].mean(),
        "training_amplifies_tangents": log_ratio.iloc[-1] - log_ratio.loc[0],
        "subspace_carries_anisotropy": (last.isoscore_gain - last.isoscore_gain_normal).mean(),
        "frequent_tokens_strongest": (last.enrichment_4 - last.enrichment_1).mean(),
    }.get(claim)


def numbers(row):
    """The seeds' numbers behind a row; or a number with its error and degrees of freedom."""
    claim, experiment = row.claim, row.experiment
    if (RESULTS / experiment / "evidence.csv").exists():  # of runs whose tables are not kept
        rows = read(experiment, "evidence.csv").query("claim == @claim and model == @row.model")
        if claim == "neighborhoods_beyond_gaussian":  # of a decrease
            rows = rows.assign(value=-rows.value)
        if rows.n.notna().any():
            return tuple(rows[["value", "error", "freedom"]].iloc[0])
        return rows.value.to_numpy()
    if claim in MATCHED:
        rows = read(experiment, "contrasts_loss_matched.csv")
        rows = rows[(rows.quantity == "growth") & (rows.positions == "all")]
        ends = row.model.split(" → ")
        rows = rows[(rows.before == ends[0]) & (rows.after == ends[1])]
        rows = rows[rows.held == "masked"] if claim == "mask_makes_growth" else rows
        rows = rows[rows.held == "causal"] if claim == "objective_makes_growth" else rows
        assert len(rows) == 1
        return (-rows.change.item(), rows.error.item(), rows.freedom.item())
    runs = read(experiment, "runs.csv")
    if claim in MODELS:
        x, y = runs.groupby("condition")[[*MODELS[claim]]].mean().dropna().T.to_numpy()
        r = ((x - x.mean()) * (y - y.mean())).sum() / math.sqrt(
            ((x - x.mean()) ** 2).sum() * ((y - y.mean()) ** 2).sum()
        )
        return (math.log((1 + r) / (1 - r)) / 2, 1 / math.sqrt(len(x) - 3), math.inf)
    own = runs[runs.condition == row.model.removesuffix(" less encoder")]
    if claim in PAIRS:
        name = row.model.removesuffix(" less encoder")
        other = "bidirectional_masked" if name == "causal_next" else name.replace("decoder", "encoder")  # fmt: skip
        of_seed = runs[runs.condition == other].set_index("train.seed")[PAIRS[claim]]
        return (own[PAIRS[claim]] - own["train.seed"].map(of_seed)).to_numpy()
    if claim == "cosine_follows_drift_over_layers":
        layers = read(experiment, "layers.csv").query("positions == 'all' and run in @own.run")
        ranks = layers.groupby("run")[["mean_cosine", "drift"]].rank()
        return np.array([np.corrcoef(x.T)[0, 1] for _, x in ranks.groupby(layers.run)])
    if claim in COLUMNS:
        return COLUMNS[claim](own).to_numpy()
    table = read(experiment, "tangents.csv")
    return np.array([gradients(claim, table[table.run == name]) for name in own.run])


def computed(row):
    """Effect, ends, p and verdict by the rule in words of docs/explanation/statistics.md."""
    found, s = numbers(row), row.smallest
    if isinstance(found, tuple):
        effect, error, freedom = found
    elif row.claim in SIGNS:
        effect, low, high = np.median(found), min(found), max(found)
        above = sum(x > math.copysign(s, effect) for x in found)
        p = stats.binomtest(int(above), len(found)).pvalue
    else:
        effect, freedom = np.mean(found), len(found) - 1
        error = np.std(found, ddof=1) / math.sqrt(len(found))
    if isinstance(found, tuple) or row.claim not in SIGNS:
        scale = math.tanh if row.claim in MODELS else float
        half = stats.t(freedom).interval(0.95)[1] * error
        low, high = effect - half, effect + half
        bound = math.atanh(s) if row.claim in MODELS else s
        nearer = bound if effect > 0 else -bound
        p = 2 * stats.t(freedom).sf(abs(effect - nearer) / error)
        effect, low, high = map(scale, (effect, low, high))
    s += -1e-9 if -s < low and high < s else 1e-9  # an end on the bound decides nothing
    within, beyond = -s < low and high < s, low > s or high < -s
    if row.claim in ABSENCES:
        verdict = "reproduced" if within else "contradicted" if beyond else "inconclusive"
    else:
        verdict = "equivalent to none" if within else "inconclusive"
        verdict = "reproduced" if low > s else "contradicted" if high < -s else verdict
    return (effect, low, high, p), verdict


TESTED = CLAIMS[CLAIMS.p.notna()]


@pytest.mark.parametrize("claim", sorted(set(TESTED.claim)))
def test_verdicts_follow_from_the_tables(claim):
    for row in TESTED[TESTED.claim == claim].itertuples():
        values, verdict = computed(row)
        assert (row.effect, row.low, row.high, row.p) == pytest.approx(values, rel=1e-6, abs=1e-9)
        assert row.verdict == verdict, (row.experiment, row.model)


@pytest.mark.parametrize("within", [True, False])
def test_corrected_p_are_holms_with_one_true_hypothesis_for_each_contrast(within):
    names = {path.parent.name: pd.read_csv(path) for path in RESULTS.glob("*/primary.csv")}
    every = sorted(set(CLAIMS.experiment))
    for experiments in [[name] for name in every] if within else [every]:
        own = CLAIMS[CLAIMS.experiment.isin(experiments) & CLAIMS.p.notna()]
        contrasts = [table for name, table in names.items() if name in experiments]
        family = [*own.p, *(p for table in contrasts for p in [*table.p, *table.p_margin.dropna()])]
        true = len(own) + sum(map(len, contrasts))
        largest, corrected = 0.0, {}
        for rank, p in enumerate(sorted(family)):
            largest = max(largest, min(1.0, p * min(len(family) - rank, true)))
            corrected[p] = largest
        expected = [corrected[p] for p in own.p]
        np.testing.assert_allclose(own.p_holm if within else own.p_project, expected, rtol=1e-6)
        rows = CONTRASTS[CONTRASTS.experiment.isin(experiments)]
        expected = [corrected.get(p, np.nan) for table in contrasts for p in table.p]
        found = sorted(rows.p_holm if within else rows.p_project)
        np.testing.assert_allclose(found, sorted(expected), rtol=1e-6)


def test_no_run_is_counted_twice():
    places = list(zip(CLAIMS.experiment, CLAIMS.model, strict=True))
    assert ("interventions", "softmax") not in places
    assert not CLAIMS.duplicated(["claim", "effect", "low", "high"])[CLAIMS.p.notna()].any()


def test_what_is_not_tested_has_a_reason_that_the_tables_bear_out():
    for row in CLAIMS[CLAIMS.p.isna()].itertuples():
        assert row.verdict == "inconclusive"
        if row.reason.startswith("too few"):
            assert row.n < {"models": 4}.get(row.reason.split()[2], 3)
            continue
        runs = read(row.experiment, "runs.csv")
        models = row.model.removesuffix(" less encoder"), row.model.replace("decoder less ", "")
        own = runs if row.model == "over models" else runs[runs.condition.isin(models)]
        if row.reason.startswith("has not learned"):
            assert own.test_gain_over_unigram.min() < 1
        elif "starts below 1" in row.reason:
            assert (own.last_dimension + own.compression < own.expansion).any()
        elif "has not expanded" in row.reason:
            name = "expansion" + "_microscope" * (row.claim == "compression_own_rule")
            assert (own[name] < 0.2).any()
        else:
            assert "largest at the last" in row.reason
            assert (own.compression_microscope == 0).any()
