"""Untrained blocks under bias: against numbers known before, against closed forms, and resumed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.experiments import untrained_bias
from anisoscope.models.masks import visible_keys
from anisoscope.results import joined_files
from anisoscope.sources import untrained_blocks as untrained
from anisoscope.sources.untrained_tables import (
    Kind,
    bias_norm,
    cosine_in,
    deviation,
    score_deviations,
)
from anisoscope.utils.errors import Stopped
from anisoscope.utils.processes import Stop

SIZES = {"width": 16, "heads": 2, "blocks": 2, "vocabulary": 50, "sequences": 2, "context": 8}
SMALL = UntrainedConfig(norms=(0.0, 1.0, 30.0), seeds=3, **SIZES)
POST = Kind("post", "bidirectional", "raw", "input")

# Another simulation, one seed, in another framework: post-LN, D=768, rows of deviation 0.02. By
# relative norm of the bias: number and rounding; None: too small to print.
TABLE = {
    "cosine_in": ([0.0, 0.765, 0.997, 1.0], [5e-4] * 4),
    "cosine_out": ([0.012, 0.779, 0.997, 1.0], [5e-4] * 4),
    "norm_out": ([27.71] * 4, [5e-3] * 4),
    "score_std": ([1e-4, 5e-4, 0.035, 24.4], [5e-5, 5e-5, 5e-4, 0.05]),
    "score_std_within": ([1e-4, 2e-4, 0.0021, 0.067], [5e-5, 5e-5, 5e-5, 5e-4]),
    "attention_entropy": ([6.238, 6.238, 6.238, 6.236], [5e-4] * 4),
}


def measure_all(config, kind):
    """{quantity: array over (norm, seed, ...)} and the norms."""
    seeds_S = jnp.arange(config.seed, config.seed + config.seeds, dtype=jnp.uint32)
    draws_S = untrained.draw_seeds(config, seeds_S)
    norms = np.array([bias_norm(config, kind, norm) for norm in config.norms])
    visible_TT = visible_keys(untrained.block_config(config, kind), config.context)
    tables = [untrained.measure_kind(config, kind, draws_S, norm, visible_TT) for norm in norms]
    return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float64), *tables), norms


@pytest.mark.slow
def test_reproduces_a_table_known_before():
    """Every printed number lies in the prediction interval of our seeds, give or take rounding.

    One sequence of 512 instead of 16; the cosine at N = 0 and the scores do not depend on that.
    """
    config = dataclasses.replace(untrained_bias.get_config("table"), sequences=1, seeds=5)
    values, norms = measure_all(config, POST)
    np.testing.assert_allclose(norms, [0.0, 1.0, 10.0, 300.0], rtol=1e-6)
    wide = stats.t.ppf(0.995, config.seeds - 1) * (1 + 1 / config.seeds) ** 0.5
    for name, rows in TABLE.items():
        for row, (number, rounding) in enumerate(zip(*rows, strict=True)):
            seeds = values[name][row].ravel()
            half = wide * seeds.std(ddof=1) + rounding
            assert abs(seeds.mean() - number) <= half, (norms[row], name, seeds.mean(), number)
            assert half < max(0.1 * number, 20 * rounding) or name == "score_std", (name, half)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        *(Kind("post", "bidirectional", "normed", target) for target in CHOICES["targets"]),
        *(Kind("pre", "causal", "raw", target) for target in ("both", "input")),
    ],
)
def test_variances_of_scores_are_as_in_the_closed_form(kind):
    """Means over many seeds, of everything before the softmax; D = 64 leaves a few per cent of
    O(1/D).
    """
    norms = (0.0, 0.5, 3.0, 100.0)
    sizes = {"width": 64, "heads": 4, "vocabulary": 10_000, "sequences": 3, "context": 6}
    config = UntrainedConfig(seeds=400, norms=norms, **sizes)
    values, norms = measure_all(config, kind)
    for name, expected in score_deviations(config, kind, norms).items():
        variance = np.square(values[name][..., 0])
        error = variance.std(1, ddof=1) / config.seeds**0.5
        distance = np.abs(variance.mean(1) - expected**2)
        np.testing.assert_array_less(distance, 4 * error + 0.06 * expected**2, name)
    cosine = cosine_in(config, kind.embedding, norms * (kind.target == "input"))
    np.testing.assert_allclose(values["cosine_in"].mean(1), cosine, atol=0.02)


def test_the_deviation_of_a_truncated_normal():
    expected = 0.02 * stats.truncnorm.std(-2, 2)
    np.testing.assert_allclose(deviation(UntrainedConfig()), expected, rtol=1e-6)
    assert deviation(UntrainedConfig(truncated=False)) == 0.02


def test_pooled_deviations_are_those_of_the_scores():
    heads_H = jnp.arange(2.0)[None, None, None, :, None]
    q_BTHK, k_BTHK = jax.random.normal(jax.random.key(0), (2, 3, 5, 2, 4)) + heads_H
    visible_TT = jnp.tril(jnp.ones((5, 5), bool))
    found = untrained.attention_sharpness(q_BTHK, k_BTHK, visible_TT)
    scores_BHTT = np.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK, dtype=np.float64) / 2
    seen_HP = scores_BHTT.transpose(1, 0, 2, 3)[:, :, np.tri(5, dtype=bool)].reshape(2, -1)
    np.testing.assert_allclose(found["score_std"], seen_HP.std(), rtol=1e-5)
    np.testing.assert_allclose(found["score_std_head"], np.sqrt(seen_HP.var(1).mean()), rtol=1e-5)
    rows = [scores_BHTT[:, :, i, : i + 1].var(-1) for i in range(1, 5)]
    np.testing.assert_allclose(found["score_std_within"], np.sqrt(np.mean(rows)), rtol=1e-5)


def test_stopped_and_resumed_is_never_stopped(tmp_path, monkeypatch):
    whole, parts, write, stop = (
        tmp_path / "whole",
        tmp_path / "parts",
        joined_files.write_table,
        Stop(),
    )
    config = dataclasses.replace(SMALL, norms=(0.0, 30.0))
    untrained.measure_blocks(config, whole, "whole", Stop())

    def times():
        return {path: path.stat().st_mtime_ns for path in parts.rglob("measurements/*.nc")}

    def write_and_stop(dataset, path):
        write(dataset, path)
        stop.requested = len(times()) == 2

    with monkeypatch.context() as patched:
        patched.setattr(joined_files, "write_table", write_and_stop)
        with pytest.raises(Stopped, match=r"parts: stopped before .*, norm 0"):
            untrained.measure_blocks(config, parts, "parts", stop)
    first = times()
    untrained.measure_blocks(config, parts, "parts", Stop())
    assert first.items() <= times().items()
    for path in [*parts.rglob("*.nc"), parts / "results.csv"]:
        assert path.read_bytes() == (whole / path.relative_to(parts)).read_bytes()
