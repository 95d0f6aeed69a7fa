"""Which keys a query sees: literal cases, and what a leak promises; a model in words."""

import dataclasses

import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import masks
from anisoscope.models.masks import dependence, hidden_targets, visible_keys
from anisoscope.models.model_settings import describe_model
from tests.models.cases import CONFIGS, SMALL

LITERAL = {
    "causal": ["x...", "xx..", "xxx.", "xxxx"],
    "bidirectional": ["xxxx", "xxxx", "xxxx", "xxxx"],
    "prefix": ["xx..", "xx..", "xxx.", "xxxx"],
    "window": ["x...", "xx..", ".xx.", "..xx"],
}


def leaked(leak, seed=0, context=30):
    return np.asarray(
        visible_keys(ModelConfig(context=context, mask="leak", leak=leak, leak_seed=seed), context)
    )


@pytest.mark.parametrize("mask", LITERAL)
def test_four_positions(mask):
    config = ModelConfig(context=4, mask=mask, prefix=2, window=2)
    np.testing.assert_array_equal(
        visible_keys(config, 4), [[c == "x" for c in row] for row in LITERAL[mask]]
    )


@pytest.mark.parametrize("leak", [0.0, 0.01, 0.3, 0.995, 1.0])
def test_a_leak_shows_its_fraction_of_the_later_keys_and_no_earlier_one_less(leak):
    """None is causal, and a full one is bidirectional."""
    visible_TT = leaked(leak)
    assert np.tril(visible_TT).sum() == 30 * 31 / 2
    assert np.triu(visible_TT, 1).sum() == round(leak * 30 * 29 / 2)


def test_a_larger_leak_holds_the_smaller_one_and_another_seed_is_another_draw():
    assert (leaked(0.4) >= leaked(0.2)).all()
    assert (leaked(0.2) != leaked(0.2, seed=1)).any()
    np.testing.assert_array_equal(leaked(0.2), leaked(0.2))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_targets_said_to_be_hidden_are(config):
    """At the end of a window, where no path leads; of a leak's, none but the last."""
    ahead_T = np.append(np.diagonal(dependence(config), 1), False)
    shown = np.flatnonzero(ahead_T)
    hidden = config.context - 1 - shown.max() if shown.size else config.context
    assert hidden_targets(config) == (1 if config.mask == "leak" else hidden)
    assert hidden_targets(dataclasses.replace(SMALL, mask="leak")) == SMALL.context


MODEL = ModelConfig(layers=1, width=8, heads=2, context=4)
CHANGED = {
    **{"mask": "bidirectional", "prefix": 2, "window": 2, "leak": 0.5, "norm": "post"},
    **{"layers": 2, "width": 16, "heads": 4, "context": 5, "expansion": 2, "tied": False},
    **{"position_encoding": "rotary", "activation": "gelu_tanh", "attention": "sigmoid"},
    **dict.fromkeys(("qk_norm", "center_queries", "sink", "same_first"), True),
    "bias": False,
}


def test_what_is_told_is_every_setting_but_seeds_and_how_it_is_computed():
    assert set(masks.described_fields()) == CHANGED.keys()
    for name, value in CHANGED.items():
        mask = {"mask": name} if name in masks.mask_settings() else {}
        changed = dataclasses.replace(MODEL, **mask | {name: value})
        assert describe_model(changed) != describe_model(dataclasses.replace(MODEL, **mask)), name
