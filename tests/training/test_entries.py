"""A kind that is added, a function and an entry, is validated, described, built and trained with no
other change.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from anisoscope.cli.command import check_run
from anisoscope.models import attention_block, masks, norms, positions
from anisoscope.training import objective, optimizer
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny
from tests.training.test_step import trained

ADDED = {
    **{
        "model.mask": "blocks",
        "model.window": 4,
        "model.attention": "relu",
        "model.position_encoding": "none",
    },
    **{
        "model.norm": "free",
        "objective": "same",
        "train.optimizer": "plain",
        "train.learning_rate": 1.0,
    },
}


def blocks(config, time):
    """Keys in the query's own block of `window`, before and after it."""
    block_T = jnp.arange(time) // config.window
    return block_T[:, None] == block_T[None]


def relu(scores_BHTT, v_BHTK, sink, context):
    return jnp.einsum("bhts,bhsk->bhtk", jax.nn.relu(scores_BHTT) / context, v_BHTK)


def free(x_BTD, norm, sublayer):
    out_BTD, *rest = sublayer(x_BTD)
    return x_BTD + out_BTD, *rest


def same_character(model, windows_BL, key, examples_B, mask_token):
    tokens_BT = windows_BL[:, :-1]
    return objective.Batch(tokens_BT, tokens_BT, jnp.ones(tokens_BT.shape))


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(
        masks.MASKS,
        "blocks",
        masks.Mask(blocks, lambda _: 1, setting=masks.Setting("window", 2, "context")),
    )
    monkeypatch.setitem(
        attention_block.ATTENTIONS,
        "relu",
        attention_block.Attention(relu, label="relu over the context"),
    )
    monkeypatch.setitem(positions.POSITIONS, "none", positions.Positions(label="no positions"))
    monkeypatch.setitem(
        norms.NORMS, "free", norms.Norm(free, final=True, label="no norms in the blocks")
    )
    masked = objective.OBJECTIVES["masked"]
    kind = masked._replace(label="the character itself", batch=same_character)
    monkeypatch.setitem(objective.OBJECTIVES, "same", kind)
    rule = optimizer.Optimizer(
        lambda config, share: optax.sgd(optimizer.schedule(config)), "plain SGD"
    )
    monkeypatch.setitem(optimizer.OPTIMIZERS, "plain", rule)
    return replace(tiny.config(), ADDED)


def test_an_entry_is_all_that_limits_ask_for(added):
    check_run(added)
    with pytest.raises(
        UserError, match=r"model\.window is 9; model\.mask=blocks needs 2 to model\.context=8"
    ):
        check_run(replace(added, {"model.window": 9}))
    with pytest.raises(
        UserError,
        match=r"model\.window has no effect under model\.mask=causal.* mask=window or blocks",
    ):
        check_run(replace(added, {"model.mask": "causal"}))
    with pytest.raises(
        UserError, match=r"objective=next under model\.mask=blocks shows the answer"
    ):
        check_run(replace(added, {"objective": "next"}))
    with pytest.raises(UserError, match=r"model\.sink .* attention=relu"):
        check_run(replace(added, {"model.sink": True}))


@pytest.mark.slow
def test_an_entry_is_all_that_training_asks_for(added):
    state, metrics = trained(added, steps=30)
    assert metrics[-1].loss < 0.7 * metrics[0].loss
    assert "positions" not in state.params
    kept = [
        jax.tree_util.keystr(path)
        for path, _ in jax.tree_util.tree_leaves_with_path(state.opt_state)
    ]
    assert any(".mu" in name for name in kept)  # AdamW's, of all that is no matrix of a block
    assert not any(".mu" in name and "blocks" in name and "kernel" in name for name in kept)
    np.testing.assert_array_equal(
        masks.dependence(added.model), np.kron(np.eye(2), np.ones((4, 4)))
    )
    scored_T = objective.next_positions(added.model)
    np.testing.assert_array_equal(scored_T, [0, 0, 0, 1, 0, 0, 0, 1])
