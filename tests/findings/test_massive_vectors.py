"""Clouds whose massive vectors and factors are known: moments, heights, Shapley's shares, verdicts.

Committed tables are read again by formulas that share no code with findings/.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from anisoscope.metrics import anisotropy
from findings.claims import massive_vectors
from findings.scripts import bell_factors, bell_heights, cloud_moments
from tests.program import ROOT

TABLES = ROOT / "findings" / "tables" / "massive_vectors"
LENGTH, WIDTH = 16, 24


@pytest.fixture
def windows_WTD():
    """Windows around a mean along the last axis, widest along axis 1; twelve first tokens are massive."""
    x_WTD = np.random.default_rng(0).standard_normal((16, LENGTH, WIDTH)).astype(np.float32)
    x_WTD[..., -1] += 3
    x_WTD[..., 1] *= 2
    x_WTD[:12, 0] = 200 * np.eye(WIDTH)[0]
    x_WTD[3, 5] = 200 * np.eye(WIDTH)[0]  # a massive vector that is no first token
    return x_WTD


def test_a_part_has_the_anisotropy_of_its_vectors_and_coordinates(windows_WTD):
    massive_WT = cloud_moments.massive(windows_WTD.reshape(-1, WIDTH)).reshape(16, LENGTH)
    assert massive_WT.sum() == 13
    assert massive_WT[:, 0].sum() == 12
    later_WT = np.arange(LENGTH) > np.zeros((16, 1))
    for left_WT in (massive_WT | True, later_WT, ~massive_WT):
        part = cloud_moments.make_part(windows_WTD, left_WT)
        for without in ((), [0, 3]):
            found_R = cloud_moments.leading_shares(part, without)
            assert len(found_R) == 1 + cloud_moments.FOLDS
            for j, found in enumerate(found_R):  # two windows are a fold
                kept_W = np.arange(16) // 2 != j - 1
                cloud_PD = np.delete(windows_WTD[kept_W][left_WT[kept_W]], without, 1)
                # without a fold to first order, and never above
                expected = float(anisotropy(cloud_PD))
                if j == 0 or left_WT is not later_WT:  # else a fold has the only massive vector
                    assert found == pytest.approx(expected, rel=0.03 if j else 1e-5)
                assert found <= expected * (1 + 1e-5)


def test_the_second_moment_about_0_has_the_mean(windows_WTD):
    massive_WT = cloud_moments.massive(windows_WTD.reshape(-1, WIDTH)).reshape(16, LENGTH)
    part = cloud_moments.make_part(windows_WTD, ~massive_WT)
    about_0 = cloud_moments.leading_shares(part, centered=False)[0]
    assert about_0 == pytest.approx(10 / 36, abs=0.03)  # 3² + 1 of 3² + 2² + 23


def test_a_layer_is_as_high_as_its_massive_vectors_say(windows_WTD):
    row = pd.Series(bell_heights.describe_layer(windows_WTD))
    assert (row.massive, row.massive_first, row.f) == (13, 12, 13 / 256)
    low, high = (massive_vectors.height(row.f, row.d, rest) for rest in (0, row.rest))
    assert low <= row.anisotropy <= high
    assert row.rest < row.without_first < row.anisotropy
    assert row.anisotropy_low <= row.anisotropy <= row.anisotropy_high


def test_shapley_shares_are_the_mean_over_orders_and_add_up(windows_WTD):
    gain_D = np.ones(WIDTH)
    gain_D[[2, -1]] = 2, 0.5
    values = bell_factors.read_values(windows_WTD, gain_D)[1]
    factors, everything = bell_factors.FACTORS, frozenset(bell_factors.FACTORS)
    expected = dict.fromkeys(factors, 0.0)
    for order in itertools.permutations(factors):
        for place, factor in enumerate(order):
            before = frozenset(order[:place])
            change = values[before] - values[before | {factor}]
            expected[factor] = expected[factor] + change / math.factorial(len(order))
    shares = bell_factors.shapley(values, factors)
    for factor in factors:
        np.testing.assert_allclose(shares[factor], expected[factor], rtol=1e-10)
    rows = pd.DataFrame(bell_factors.describe(values)).set_index("factor")
    assert rows.share.sum() == pytest.approx(1)
    assert rows.share["left"] == pytest.approx((values[everything] / values[frozenset()])[0])
    # without axis 0 the gain acts on the others alone
    left_PD = np.delete(windows_WTD[:, 1:].reshape(-1, WIDTH) * gain_D, 0, 1)
    assert values[everything][0] == pytest.approx(float(anisotropy(left_PD)), rel=1e-5)
    # a massive vector hides the mean: alone, taking it away changes little
    assert abs(rows.alone["mean"]) < 0.01
    assert rows.share["first"] > rows.share["gain"]


def layers_of(length, ratio, text="enwik8", above=0.0, rest=0.1):
    """Layers with a massive vector a window, `above` what the norms say; block 2 without any."""
    frame = pd.DataFrame({"layer": range(5), "r": ratio, "massive": [4, 4, 0, 4, 4]})
    frame = frame.assign(d=frame.r, f=1 / length, model="a", text=text, length=length, rest=rest)
    frame["anisotropy"] = massive_vectors.height(frame.f, frame.r) + above
    return frame.assign(rest_low=frame.rest - 0.01, rest_high=frame.rest + 0.01)


def test_claims_on_the_height_are_judged_by_shares_of_layers_with_massive_vectors():
    near, far = layers_of(128, 20.0), layers_of(512, 20.0, above=[0, 0.2, 0, 0, 0])
    other = layers_of(512, 30.0, text="pydoc")
    judged = massive_vectors.judge_heights(pd.concat([near, far, other]))
    found = judged.set_index("claim")
    assert found.cells.to_dict() == {
        "by_norms": 9,
        "by_distances": 9,
        "from_another_text": 3,
        "distances_from_another_text": 3,
        "constant_norm": 3,
    }
    assert found.effect["by_norms"] == pytest.approx(8 / 9)
    assert found.verdict["by_norms"] == "holds in part"
    assert found.most["by_norms"] == pytest.approx(0.2)
    assert found.most["by_distances"] == pytest.approx(0.2 - 0.1 / (1 + 400 / 512))
    expected = 900 / 512 / (1 + 900 / 512) - 400 / 512 / (1 + 400 / 512)
    assert found["median"]["from_another_text"] == pytest.approx(expected)
    assert found.verdict["from_another_text"] == "does not hold"
    assert found.verdict["constant_norm"] == "holds"


def test_a_bell_that_is_left_is_judged_by_the_unfavorable_ends():
    for peak, verdict in (
        (0.1, "equivalent to none"),
        (0.2, "reproduced"),
        (0.155, "inconclusive"),
    ):
        rest = [0.5, 0.1, 0.1, peak, 0.08]
        row = massive_vectors.judge_bells(layers_of(128, 20.0, rest=rest)).iloc[0]
        assert row.effect == pytest.approx(peak - 0.1)
        assert (row.low, row.high) == pytest.approx((row.effect - 0.02, row.effect + 0.02))
        assert row.verdict == verdict


def recomputed_verdicts():
    """Verdicts from the committed tables in plain NumPy: {(claim, model, text): (effect, verdict)}."""
    rows = pd.read_csv(TABLES / "heights.csv").to_dict("records")
    own = {
        (r["model"], r["layer"]): r for r in rows if r["text"] == "enwik8" and r["length"] == 128
    }
    near, logs, found = {}, {}, {}
    for r in rows:
        if r["layer"] == 0 or r["massive"] == 0:
            continue
        y, model, fr2, fd2 = r["anisotropy"], r["model"], r["f"] * r["r"] ** 2, r["f"] * r["d"] ** 2
        logs.setdefault((model, r["text"], r["layer"]), []).append(np.log2(r["r"]))
        near.setdefault(("by_norms", model), []).append(abs(y - fr2 / (1 + fr2)) <= 0.05)
        low, high = fd2 / (1 + fd2), (r["rest"] + fd2) / (1 + fd2)
        near.setdefault(("by_distances", model), []).append(low - 0.05 <= y <= high + 0.05)
        o = own[model, r["layer"]]
        if r["text"] == "enwik8" or o["massive"] == 0:
            continue
        fr2, fd2 = o["r"] ** 2 / r["length"], o["d"] ** 2 / r["length"]
        near.setdefault(("from_another_text", model), []).append(abs(y - fr2 / (1 + fr2)) <= 0.05)
        low, high = fd2 / (1 + fd2), (o["rest"] + fd2) / (1 + fd2)
        inside = low - 0.05 <= y <= high + 0.05
        near.setdefault(("distances_from_another_text", model), []).append(inside)
    lengths = {}
    for r in rows:
        lengths.setdefault((r["model"], r["text"]), set()).add(r["length"])
    for (model, text, _), values in logs.items():
        if len(values) == len(lengths[model, text]) > 1:
            near.setdefault(("constant_norm", model), []).append(max(values) - min(values) <= 0.2)
    for key, inside in near.items():
        share = sum(inside) / len(inside)
        words = "holds" if share >= 0.9 else "holds in part" if share >= 0.5 else "does not hold"
        found[*key, None] = share, words
    for model, text in {(r["model"], r["text"]) for r in rows}:
        chosen = [
            r
            for r in rows
            if (r["model"], r["text"], r["length"]) == (model, text, 128) and r["layer"]
        ]
        mean, low, high = (
            np.array([r[name] for r in sorted(chosen, key=lambda r: r["layer"])])
            for name in ("rest", "rest_low", "rest_high")
        )
        least = low[1:-1].max() - max(high[0], high[-1])
        most = high[1:-1].max() - max(low[0], low[-1])
        words = "reproduced" if least > 0.05 else "equivalent to none" if most < 0.05 else "inconclusive"  # fmt: skip
        effect = mean[1:-1].max() - max(mean[0], mean[-1])
        found["bell_without_massive", model, text] = effect, words
    return found


def test_every_verdict_is_recomputed_from_the_layers():
    table = pd.read_csv(TABLES / "verdicts.csv").astype({"text": object})
    expected, checked = recomputed_verdicts(), 0
    for row in table.itertuples():
        key = row.claim, row.model, row.text if isinstance(row.text, str) else None
        if key in expected:
            effect, words = expected[key]
            assert row.effect == pytest.approx(effect), key
            assert row.verdict == words, key
            checked += 1
    assert checked == len(expected)
    assert checked >= 4 * 5 + 4 * 3 - 8  # claims without a layer to judge have no row


def test_every_baseline_is_recomputed_from_the_layers():
    frame = pd.read_csv(TABLES / "heights.csv").query("layer > 0 and massive > 0")
    own = {
        (r.model, r.layer): r for r in frame.itertuples() if (r.text, r.length) == ("enwik8", 128)
    }
    medians, found = frame.groupby("model").anisotropy.median(), {}
    for r in frame.itertuples():
        y = r.anisotropy
        found.setdefault(("all", "constant", r.model), []).append(abs(y - medians[r.model]))
        o = own.get((r.model, r.layer))
        if o is None or (r.text, r.length) == ("enwik8", 128):
            continue
        cells = "other windows" if r.text == "enwik8" else "other texts"
        found.setdefault((cells, "copy", r.model), []).append(abs(y - o.anisotropy))
        fd2 = o.d**2 / r.length
        low, high = fd2 / (1 + fd2), (o.rest + fd2) / (1 + fd2)
        found.setdefault((cells, "distances", r.model), []).append(max(low - y, y - high, 0))
        found.setdefault((cells, "middle", r.model), []).append(abs(y - (low + high) / 2))
    table = pd.read_csv(TABLES / "baselines.csv")
    assert len(table) == len(found) == 7 * 4
    for row in table.itertuples():
        distances = found[row.set, row.prediction, row.model]
        assert row.cells == len(distances)
        assert row.effect == np.mean(np.array(distances) <= 0.05)
        assert (row.median, row.most) == pytest.approx((np.median(distances), max(distances)))


def test_every_share_is_recomputed_from_the_factors():
    """Shapley's shares as the mean over the 24 orders, from the leading shares of all 16 sets."""
    factors = pd.read_csv(TABLES / "factors.csv").fillna({"without": ""})
    shares = pd.read_csv(TABLES / "shares.csv", dtype={"layer": str})
    names = ("first", "coordinates", "mean", "gain")
    keys = ["model", "text", "coordinates"]
    for key, part in factors.groupby(keys):
        value_LS = part.assign(without=[frozenset(x.split()) for x in part.without])
        value_LS = value_LS.pivot(index="layer", columns="without", values="value")
        inner_S = value_LS.iloc[1:-1].mean()
        own = shares[(shares[keys] == list(key)).all(axis=1) & (shares.start == "about 0")]
        for layer, value_S in [
            *((str(n), row) for n, row in value_LS.iterrows()),
            ("inner", inner_S),
        ]:
            found = own[own.layer == layer].set_index("factor").share
            orders = [*itertools.permutations(names)]
            for name in names:
                falls = []
                for order in orders:
                    before = frozenset(order[: order.index(name)])
                    falls.append(value_S[before] - value_S[before | {name}])
                expected = np.mean(falls) / value_S[frozenset()]
                assert found[name] == pytest.approx(expected, abs=1e-5)  # tables have six digits
            left = value_S[frozenset(names)] / value_S[frozenset()]
            assert found["left"] == pytest.approx(left, abs=1e-5)
