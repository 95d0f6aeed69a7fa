"""Every row of findings/tables/verdicts.csv that a seed's number stands behind, computed again.

Independent of findings/claims: NumPy and the committed tables, with a formula for each claim.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from findings.claims.claim_entries import CLAIMS as ENTRIES
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


ONE_SIDED = {"decoder_bell", "decoder_bell_with_embedding"}
EMBEDDING, WITHOUT = ", embedding", ", without the first token"


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
    model = row.model.removesuffix(EMBEDDING)
    own = runs[runs.condition == model.removesuffix(" less encoder")]
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
    table = table[(table.layer == 0) if row.model.endswith(EMBEDDING) else (table.layer >= 1)]
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
        nearer = bound if effect > 0 or row.claim in ONE_SIDED else -bound
        p = 2 * stats.t(freedom).sf(abs(effect - nearer) / error)
        effect, low, high = map(scale, (effect, low, high))
    return (effect, low, high, p), judged(row, low, high)


def judged(row, low, high):
    s = row.smallest
    if any(math.isclose(abs(end), s, abs_tol=1e-9) for end in (low, high)):
        return "inconclusive"  # an end on the bound decides nothing
    opposite = "contradicted"
    if row.mark == "reconstructed":
        opposite = "our reconstruction does not show it"
    if row.claim in ONE_SIDED:
        return "reproduced" if low > s else "equivalent to none" if high < s else "inconclusive"
    within, above, below = -s < low and high < s, low > s, high < -s
    if row.claim in ABSENCES:
        return "reproduced" if within else opposite if above or below else "inconclusive"
    found = "equivalent to none" if within else "reproduced" if above else "inconclusive"
    return opposite if below else found


def layers_of(row):
    """The layers of a single model: values, and the ends of their intervals."""
    files = [pd.read_csv(RESULTS / "real_models" / f"{x}.csv") for x in ("layers", "published")]
    side = "without_first_token" if row.model.endswith(WITHOUT) else "all"
    layers = pd.concat(files)
    layers = layers[(layers.model == row.model.removesuffix(WITHOUT)) & (layers.positions == side)]
    first = 0 if row.claim == "decoder_bell_with_embedding" else 1
    return layers[layers.layer >= first].sort_values("layer")[["mean", "low", "high"]].to_numpy().T


def bell(profiles):
    """Of profiles (..., layers): the highest inner layer above the higher end."""
    ends = np.maximum(profiles[..., 0], profiles[..., -1])
    return np.sort(profiles[..., 1:-1])[..., -1] - ends


def single(row):
    """Effect and ends of a single model, from its layers or its neighborhoods."""
    if row.claim.startswith("neighborhoods"):
        table = pd.read_csv(RESULTS / "real_models" / "local.csv")
        side = "without_first_token" if row.model.endswith(WITHOUT) else "all"
        model = row.model.removesuffix(WITHOUT)
        table = table[(table.model == model) & (table.positions == side)].set_index("quantity")
        if row.claim == "neighborhoods_beyond_gaussian":
            mean, low, high = table.loc["local_anisotropy_excess", ["mean", "low", "high"]]
            return -mean, -high, -low
        cloud, part = table.loc["anisotropy"], table.loc["local_anisotropy"]
        return cloud["mean"] - part["mean"], cloud.low - part.high, cloud.high - part.low
    mean, low, high = layers_of(row)
    if row.claim == "flat_encoder":  # by all corners, and by steps towards the mean
        corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), -1).reshape(-1, len(low))
        nearest = mean
        for _ in range(10_000):
            nearest = np.clip(nearest.mean(), low, high)
        return mean.std(), nearest.std(), corners.std(-1).max()
    inner, ends = np.ones(len(mean), bool), np.zeros(len(mean), bool)
    inner[[0, -1]], ends[[0, -1]] = False, True
    worst, best = np.where(inner, low, high), np.where(ends, low, high)
    return bell(mean), bell(worst), bell(best)


SINGLE = CLAIMS[CLAIMS.test == "one model on one sample, no test"]


@pytest.mark.parametrize("claim", sorted(set(SINGLE.claim)))
def test_intervals_of_single_models_are_those_of_layers_at_the_unfavorable_ends(claim):
    rng = np.random.default_rng(0)
    for row in SINGLE[SINGLE.claim == claim].itertuples():
        value, low, high = single(row)
        found = pytest.approx((value, low, high), abs=1e-6)
        assert (row.effect, row.low, row.high) == found, row.model
        assert row.verdict == judged(row, low, high), row.model
        assert -1 <= low <= value <= high <= 1
        if not claim.startswith("neighborhoods"):  # no profile within the layers' ends lies outside
            _, least, most = layers_of(row)
            profiles = rng.uniform(least, most, (1000, len(least)))
            read_off = profiles.std(-1) if claim == "flat_encoder" else bell(profiles)
            assert low - 1e-9 <= read_off.min() <= read_off.max() <= high + 1e-9


def test_smollm2_without_its_first_token_has_a_bell():
    row = SINGLE[(SINGLE.claim == "decoder_bell") & SINGLE.model.str.startswith("SmolLM2")]
    row = row[row.model.str.endswith(WITHOUT)].iloc[0]
    assert [row.effect, row.low, row.high] == pytest.approx([0.218, 0.076, 0.707], abs=5e-4)
    assert (row.verdict, row.role) == ("reproduced", "not counted")


def test_no_low_bar_is_contradicted_and_no_model_is_counted_twice():
    low_bars = {name for name, claim in ENTRIES.items() if claim.low_bar}
    assert not CLAIMS[CLAIMS.claim.isin(low_bars)].verdict.eq("contradicted").any()
    counted = CLAIMS[~CLAIMS.role.isin(["not counted", "own comparison"])]
    assert not counted.model.str.endswith((WITHOUT, EMBEDDING)).any()
    assert not counted.duplicated(["experiment", "claim", "model"]).any()
    assert set(counted[counted.test == SINGLE.test.iloc[0]].p.dropna()) == set()


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
    for row in CLAIMS[CLAIMS.p.isna() & ~CLAIMS.index.isin(SINGLE.index)].itertuples():
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
