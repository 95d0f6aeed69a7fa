"""Verdicts on what is planted: every rule in all directions, and what each reader takes from the
tables of a folder.
"""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis import on_disk
from anisoscope.analysis.shapes import SHAPES
from anisoscope.results import joined_files
from findings.claims import evidence
from findings.claims.claim_entries import CLAIMS, LEARNED, RECONSTRUCTED
from findings.claims.verdicts import (
    CONSTANT,
    CONTRADICTED,
    EQUIVALENT,
    INCONCLUSIVE,
    NOT_SHOWN,
    REPRODUCED,
    TOO_WIDE,
    count,
    judge_interval,
    verdicts,
)
from tests.analysis.synthetic_runs import made
from tests.plot.tables import make_tangents

SEEDS = np.array([-1.0, 1.0, -0.5, 0.5, 0.0])


def plant(folder, effect=2.0, scatter=0.01, seeds=5, gain=LEARNED + 1, outside=""):
    """Evidence of every claim, in units of its smallest effect of interest, positive as claimed."""
    rows = []
    for name, claim in CLAIMS.items():
        value, spread = effect * claim.smallest, scatter * claim.smallest
        about = {"claim": name, "model": "model", "gain": gain, "outside": outside, "part": ""}
        if claim.table in ("over_models", "matched"):
            value = (
                np.arctanh(np.clip(value, -0.99, 0.99)) if claim.table == "over_models" else value
            )
            whole = {"unit": "whole", "value": value, "error": spread, "freedom": 4.0, "n": seeds}
            rows.append(about | whole)
        else:
            values = value + spread * SEEDS[:seeds]
            rows += [about | {"unit": str(i), "value": x} for i, x in enumerate(values)]
    folder.mkdir()
    frame = pd.DataFrame(rows).reindex(columns=list(evidence.COLUMNS))
    frame.to_csv(folder / evidence.NAME, index=False)
    return folder


@pytest.mark.parametrize(
    ("planted", "verdict", "of_absence", "reason"),
    [
        ({}, REPRODUCED, CONTRADICTED, ""),
        ({"effect": -2.0}, CONTRADICTED, CONTRADICTED, ""),
        ({"effect": 0.0}, EQUIVALENT, REPRODUCED, ""),
        ({"effect": 0.5}, EQUIVALENT, REPRODUCED, ""),
        ({"effect": 1.0}, INCONCLUSIVE, INCONCLUSIVE, TOO_WIDE),  # as large as the smallest
        ({"effect": -1.0}, INCONCLUSIVE, INCONCLUSIVE, TOO_WIDE),
        ({"scatter": 10.0}, INCONCLUSIVE, INCONCLUSIVE, TOO_WIDE),
        ({"seeds": 2}, INCONCLUSIVE, INCONCLUSIVE, "too few"),
        ({"gain": 0.4}, INCONCLUSIVE, INCONCLUSIVE, "has not learned"),
        ({"outside": "too deep"}, INCONCLUSIVE, INCONCLUSIVE, "outside the claim's regime: too deep"),
    ],
)  # fmt: skip
def test_every_rule_finds_what_is_planted_and_leaves_open_what_it_must(
    tmp_path, planted, verdict, of_absence, reason
):
    found = verdicts([plant(tmp_path / "it", **planted)]).set_index("claim")
    assert set(found.index) == set(CLAIMS)
    for name, row in found.iterrows():
        claim = CLAIMS[name]
        needless = reason == "has not learned" and not claim.learned
        expected = REPRODUCED if needless else of_absence if claim.absence else verdict
        if claim.directed and planted.get("effect", 1) < 0:
            expected, needless = EQUIVALENT, True  # nothing is the opposite of a bell
        if expected == CONTRADICTED and claim.mark == RECONSTRUCTED:
            expected = NOT_SHOWN
        assert row.verdict == expected, name
        assert row.reason.startswith("" if needless else reason), name
        assert bool(row.reason) == (row.verdict == INCONCLUSIVE)
        if not row.reason and not claim.bounded:  # of five seeds no sign test is below 0.06
            assert row.p < 0.05, name


@pytest.mark.parametrize("towards", [-1.0, 0.5, 1.0])
def test_an_end_on_the_bound_but_for_rounding_decides_nothing(towards):
    bound = np.nextafter(0.5, towards)
    for low, high in ((-0.1, bound), (-bound, 0.1), (bound, 0.9), (-0.9, -bound)):
        claims = [CLAIMS["growth"]._replace(smallest=0.5, absence=x) for x in (False, True)]
        assert {judge_interval(low, high, claim) for claim in claims} == {INCONCLUSIVE}


def test_seeds_without_scatter_are_not_tested_unless_by_their_signs(tmp_path):
    found = verdicts([plant(tmp_path / "it", scatter=0.0)])
    for row in found.itertuples():
        bounded = CLAIMS[row.claim].bounded
        assert (row.p == 0.0625) if bounded else np.isnan(row.p), row.claim
        assert (row.verdict == INCONCLUSIVE) != bounded, row.claim
        assert row.reason == ("" if bounded else CONSTANT), row.claim


MASKS = {"decoder": "causal", "encoder": "bidirectional"}
NAMES = [f"{kind}_{seed}" for kind in MASKS for seed in (0, 1, 2)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Three seeds of a decoder with a bell and of a flat encoder, as `measure` leaves them."""
    folder = tmp_path_factory.mktemp("planted")
    score = {"bits_per_character": 2.0, "gain_over_unigram": 2.5, "step": 6}
    for name in NAMES:
        kind, seed = name.split("_")
        mask = MASKS[kind]
        table = made(int(seed), layers=4, causal=mask == "causal", model__mask=mask)
        joined_files.write_table(table, folder / name / "results.nc")
        (folder / name / "test.json").write_text(json.dumps(score))
    on_disk.write_experiment({name: folder / name for name in NAMES}, folder, {})
    return folder


@pytest.fixture
def experiment(planted, tmp_path):
    return shutil.copytree(planted, tmp_path / "experiment")


def test_a_planted_decoder_has_its_bell_and_a_planted_encoder_is_flat(experiment):
    rows, judged = evidence.read_evidence(experiment), verdicts([experiment])
    found = judged.set_index(["claim", "model"])
    assert found.loc[("decoder_bell", "decoder"), "verdict"] == REPRODUCED
    flat = found.loc[("flat_encoder", "encoder")]
    assert flat.reason == "too few seeds (3 of 5)"
    assert flat.high < flat.smallest
    assert ("decoder_bell", "encoder") not in found.index
    last = pd.read_csv(experiment / "runs.csv").set_index("run").last_anisotropy
    np.testing.assert_allclose(
        rows.query("claim == 'decoder_more_anisotropic'").value,
        [last[f"decoder_{i}"] - last[f"encoder_{i}"] for i in range(3)],
    )
    layers = pd.read_csv(experiment / "layers.csv").query(
        "run == 'decoder_1' and positions == 'all'"
    )
    rho = rows.query("claim == 'cosine_follows_drift_over_layers' and unit == 'decoder_1'").value
    expected = layers.mean_cosine.corr(layers.drift, method="spearman")
    assert rho.item() == pytest.approx(expected)
    joined_files.write_csv(rows, experiment / evidence.NAME)
    for name in ("runs", "layers", "contrasts"):
        (experiment / f"{name}.csv").unlink(missing_ok=True)
    alone = verdicts([experiment])  # by the word of evidence.csv
    np.testing.assert_allclose(alone.effect, judged.effect)


@pytest.mark.parametrize(
    ("claim", "columns", "outside"),
    [
        ("expansion_twonn", (4.0, 0.5, 0.1), "exceeds 10"),
        ("expansion_twonn", (3.0, 0.5, 0.5), "exceeds 10"),
        ("expansion_twonn", (3.0, 0.5, 0.2), ""),
        ("expansion_twonn", (2.0, 0.5, np.nan), "exceeds 10"),
        ("expansion_twonn", (0.1, 0.5, 0.2), "starts below 1"),
        ("compression_twonn", (2.0, 0.5, 0.2), ""),
        ("compression_twonn", (0.1, 0.5, 0.2), "starts below 1"),
        ("compression_twonn", (3.0, 0.5, 0.5), "exceeds 10"),
        ("compression_twonn", (2.0, 0.1, 0.2), "has not expanded"),
        ("compression_twonn", (2.0, 0.5, 0.0), "largest at the last"),
        ("stabilization", (0.03, 0.01, 0.0), "never grown"),  # growth, drop from the peak
        ("stabilization", (-0.1, 0.2, 0.0), ""),
    ],
)
def test_phases_outside_of_their_regime_decide_nothing(claim, columns, outside):
    names = ("last_dimension", "expansion", "compression")
    if claim == "stabilization":
        names = ("growth", "drop_from_peak", "last_dimension")
    rows = decoders(1, kind="decoder", gain=2.0, **dict(zip(names, columns, strict=True)))
    for row in evidence.from_runs(None, rows, CLAIMS[claim]):
        assert outside in row["outside"] if outside else row["outside"] == ""


def test_interventions_decide_nothing(experiment):
    rows, path = pd.read_csv(experiment / "runs.csv"), experiment / "runs.csv"
    rows.assign(**{"model.attention": "sigmoid"}).to_csv(path, index=False)
    assert "decoder_bell" not in set(evidence.read_evidence(experiment).claim)


def test_runs_that_are_not_independent_or_not_finished_decide_nothing(experiment):
    rows, path = pd.read_csv(experiment / "runs.csv"), experiment / "runs.csv"
    rows.assign(unfinished=rows.run == "encoder_1").to_csv(path, index=False)
    found = evidence.read_evidence(experiment).set_index(["claim", "unit"]).outside
    assert found["flat_encoder"].to_dict() == {
        "encoder_0": "", "encoder_1": evidence.UNFINISHED, "encoder_2": ""
    }  # fmt: skip
    assert found["decoder_more_anisotropic"].to_dict() == {
        "decoder_0": "", "decoder_1": evidence.UNFINISHED, "decoder_2": ""
    }  # fmt: skip
    changes = {"train.seed": [0, 0, 1] * 2, "train.data_seed": [0, 1, 0] * 2}
    rows.assign(**changes).to_csv(path, index=False)
    found = evidence.read_evidence(experiment).set_index("claim").outside
    assert set(found["decoder_bell"]) == {evidence.CROSSED}


def decoders(conditions, **columns):
    """runs.csv of decoders with two seeds each."""
    runs = [(f"c{i}", f"c{i}_{seed}", seed) for i in range(conditions) for seed in (0, 1)]
    rows = pd.DataFrame(runs, columns=["condition", "run", "train.seed"])
    more = {"objective": "next", "model.mask": "causal", "test_gain_over_unigram": 2.0}
    more["outside"] = ""
    return rows.assign(**more, **columns)


def matched(folder, *held):
    """Loss-matched contrasts of growth, as many as there are words for what is held."""
    about = {"before": "no center_queries", "after": "center_queries", "quantity": "growth"}
    about |= {"setting": "model.center_queries", "positions": "all", "error": 0.01}
    about |= {"freedom": 4, "pairs": 5, "level": 1.5, "without": ""}
    frame = pd.DataFrame([about] * len(held))
    frame = frame.assign(held=held, change=[-0.1 * (i + 1) for i in range(len(held))])
    joined_files.write_csv(frame, folder / "contrasts_loss_matched.csv")


def test_contrasts_of_one_claim_that_hold_other_things_are_two(tmp_path):
    matched(tmp_path, "causal")
    assert evidence.read_evidence(tmp_path).model.tolist() == ["no center_queries → center_queries"]
    matched(tmp_path, "causal", "window 16")
    found = verdicts([tmp_path])
    assert found.effect.tolist() == pytest.approx([0.1, 0.2])  # it grows less, as claimed
    assert found.model.str.endswith((" (causal)", " (window 16)")).all()
    path = tmp_path / "contrasts_loss_matched.csv"
    table = pd.read_csv(path)
    for column, value, reason in (
        ("without", "causal_3", "has not learned"),
        ("pairs", 16, "are crossed"),
    ):
        table.assign(**{column: value}).to_csv(path, index=False)
        assert verdicts([tmp_path]).reason.str.contains(reason).all()


def test_gradients_are_written_by_run_and_read_of_the_last_step(experiment):
    tables = {name: make_tangents(seed) for seed, name in enumerate(NAMES)}
    folders = {name: experiment / name for name in NAMES}
    for name, folder in folders.items():
        joined_files.write_table(tables[name], folder / "tangents.nc")
    written = pd.read_csv(on_disk.write_tangents(folders, experiment))
    assert len(written) == len(NAMES) * 6 * 3  # steps and layers
    found = evidence.read_evidence(experiment).set_index(["claim", "unit", "part"]).value
    table = tables["decoder_1"].sel(kind="semi-NMF", rows="raw", fit="early", statistic="mean")
    last, embedding = (table.isel(rank=-1, step=-1, layer=x) for x in (slice(1, None), 0))
    energy = last.energy.mean() - last.control_energy.mean()
    enrichment = (last.enrichment_in_bin[..., -1] - last.enrichment_in_bin[..., 0]).mean()
    for claim, value in {
        "gradient_in_activation_subspace": energy,
        "gradient_beyond_variance": last.excess.mean(),
        "frequent_tokens_strongest": enrichment,
    }.items():
        assert found[claim, "decoder_1", ""] == pytest.approx(float(value)), claim
    own = found["gradient_beyond_variance", "decoder_1", "embedding"]
    assert own == pytest.approx(float(embedding.excess))


def test_blocks_are_read_where_the_input_leaves_something_to_add(tmp_path):
    cosine = np.array([0.0, 0.5, 0.99])
    added = np.array([0.1, 0.3, 0.005])
    place = ("mask", "embedding", "target", "block", "seed", "norm_order", "relative_norm")
    dims = dict(zip(place, (1, 1, 1, 1, 3, 2, 3), strict=True))
    columns = {"cosine_in": cosine, "cosine_out": cosine + added}
    columns |= {"score_std": [1.0, 2.0, 8.0], "attention_entropy": [6.0, 5.5, 5.0]}
    table = xr.Dataset({name: ("relative_norm", np.array(x)) for name, x in columns.items()})
    table = table.expand_dims({name: size for name, size in dims.items() if name not in table.dims})
    table = table.assign_coords(
        relative_norm=[0.0, 1.0, 10.0], norm_order=["pre", "post"], seed=[0, 1, 2]
    )
    joined_files.write_table(table, tmp_path / "seeds.nc")
    found = evidence.read_evidence(tmp_path).groupby("claim").value.unique()
    assert found["untrained_blocks_pass_on"] == pytest.approx([0.2])
    assert found["untrained_block_without_bias"] == pytest.approx([0.1])
    assert found["bias_raises_score_variance"] == pytest.approx([3.0])
    assert found["bias_sharpens_untrained_attention"] == pytest.approx([1.0])
    assert evidence.read_evidence(tmp_path).model.unique().tolist() == [
        "post-LN block",
        "pre-LN block",
    ]


def test_every_entry_names_what_there_is():
    for name, claim in CLAIMS.items():
        assert claim.table in evidence.READERS, name
        assert claim.smallest > 0, name
        assert claim.reason, name
        assert claim.reading_of in ("", *CLAIMS), name
        columns = {column for regime in claim.regime for column in regime.columns}
        columns |= {*claim.columns} if claim.table in ("runs", "pairs", "matched") else set()
        assert columns <= {*SHAPES, "mean_cosine"}, name
        assert (claim.table == "matched") == (claim.contrast is not None), name


def test_a_part_of_a_model_is_not_counted_and_a_single_model_is_counted_apart(tmp_path):
    rows = [
        {"claim": "decoder_bell", "model": model, "part": part, "value": 0.2, "outside": ""}
        | {"low": 0.1, "high": 0.7, "n": 32, "unit": "profile"}
        for model in ("a", "b")
        for part in ("", "without the first token")
    ]
    rows += [
        {"claim": claim, "model": "c", "part": "", "value": 0.2 + seed / 100, "gain": 2.0}
        | {"unit": seed, "outside": ""}
        for claim in ("decoder_bell", "decoder_bell_with_embedding")
        for seed in range(3)
    ]
    frame = pd.DataFrame(rows).reindex(columns=list(evidence.COLUMNS))
    frame.to_csv(tmp_path / evidence.NAME, index=False)
    found = verdicts([tmp_path])
    assert count(found)[REPRODUCED].to_dict() == {
        "not counted": 3, "three papers": 1, "three papers, single models": 2
    }  # fmt: skip
    single = found[found.model == "a, without the first token"].iloc[0]
    assert (single.low, single.high, single.role) == (0.1, 0.7, "not counted")
    assert found.p.notna().sum() == 2
