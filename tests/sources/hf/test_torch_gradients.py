"""Gradients by torch: those of our own network where it is the same, those of differences, and what
has none.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.models import transformer
from anisoscope.models.masks import visible_keys
from anisoscope.sources.hf import guards
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.subspaces import tangent_gradients
from anisoscope.subspaces.hf import torch_gradients
from anisoscope.subspaces.tangent_quantities import MATRICES, WEIGHT_CHANGES
from anisoscope.utils.errors import UserError
from tests.sources.hf import own_in_torch, tiny_models
from tests.sources.hf.architectures import TEXT, build

WORD, NATS = "hidden_states", 0.02  # of the loss, by which a step moves it
PREDICTS = [name for name, row in TEXT.items() if guards.head_task(row.model)]

LAYER_NORM_FIRST = {
    "OPT", "GPT-2", "GPT-J", "GPT-Neo", "Falcon-40B", "Falcon-7B", "Falcon-RW", "Bloom", "StarCoder2", "StableLM",
    "Command R", "Pythia", "OLMo", "Phi-1, 2",
}  # fmt: skip
OF_BLOCKS = {"attention", "attention_out", "mlp", "mlp_out"}
MISSING = {"ALBERT": set(MATRICES), "OPT-350m": {"embedding"}}
MISSING |= dict.fromkeys(("OLMoE", "Mixtral", "Qwen3, experts", "gpt-oss"), OF_BLOCKS)


def windows_of(vocabulary, length=12, count=8, folds=4, points=32, seed=0):
    """Windows with every position scored, as for a decoder of ours."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, vocabulary, (folds, count // folds, length + 1)).astype(np.int32)
    settings = TangentsConfig(points=points, folds=folds, windows=count)
    ones, bins = np.ones(text[..., :-1].shape, np.float32), text[..., :-1] % 4
    return tangent_gradients.pick_points(text[..., :-1], text[..., 1:], ones, bins, settings, rng)


@pytest.fixture(scope="module", params=["learned", "rotary"])
def both(request):
    """A model of ours with large random weights, and the same of transformers, on the same windows."""
    config = ModelConfig(
        layers=2, width=24, heads=3, context=12, position_encoding=request.param, dtype="float32"
    )
    network = transformer.build(config, 20, "float32")
    params = jax.tree.map(lambda x: 5 * x if x.ndim > 2 else x, network.init(jax.random.key(0)))
    theirs = own_in_torch.in_torch(config, params)
    loaded = tiny_models.as_loaded(theirs, find_adapter(theirs.config.model_type))
    visible, basis = jnp.asarray(visible_keys(config, 12)), tangent_gradients.stream_basis(24, 23)
    fit, test = windows_of(20, seed=1), windows_of(20)

    @jax.jit
    def ours(fit, test):
        return (
            tangent_gradients.activations(network, params, fit, visible, basis),
            tangent_gradients.compute_gradients(network, params, test, visible, basis),
        )

    with jax.default_matmul_precision("highest"):
        own = jax.device_get(ours(fit, test))
    theirs = (
        torch_gradients.states(loaded, fit, basis, 1),
        torch_gradients.compute_torch_gradients(loaded, test, basis, 1),
    )
    return own, theirs, basis


def test_what_torch_reads_is_what_our_network_gives(both):
    (own_cloud, own), (cloud, theirs), basis = both
    np.testing.assert_allclose(cloud, own_cloud, atol=1e-5, rtol=1e-5)
    for name in {*own._fields} - {"weights", "ones_JN"}:
        x, y = np.asarray(getattr(own, name)), getattr(theirs, name)
        np.testing.assert_allclose(y, x, atol=1e-5 * np.abs(x).max(), rtol=1e-4, err_msg=name)
    x, y = (
        tangent_gradients.short_rows(dict.fromkeys(WEIGHT_CHANGES, part.weights), basis, 3)
        for part in (own, theirs)
    )
    x, y = (np.einsum("nmod,nmoe->nmde", part, part) for part in (x, y))
    np.testing.assert_allclose(y, x, atol=1e-5 * np.nanmax(np.abs(x)), rtol=1e-4)
    # layers that a matrix does not meet
    assert np.isnan(y).any(axis=(2, 3)).sum() == 3 * (2 + 4)
    assert max(torch_gradients.ones_share(part) for part in (own, theirs)) < 1e-9
    assert torch_gradients.removes_ones(theirs, 24)


@pytest.mark.parametrize("name", PREDICTS)
def test_gradients_are_those_of_differences_and_matrices_as_wide_as_the_stream(name):
    """Of every class that has a loss, along the gradient itself: of the first layer, a middle one
    and the last.

    Ones are left out where every reader removes them.
    """
    loaded = build(name)
    loaded.model.requires_grad_(False)
    windows = windows_of(36, 12, 2, 1, 24)
    scored = np.random.default_rng(1).integers(0, 2, windows.tokens_JWT.shape).astype(np.float32)
    windows = windows._replace(
        tokens_JWT=windows.tokens_JWT + 4, targets_JWT=windows.targets_JWT + 4, weights_JWT=scored
    )
    width = loaded.model.config.hidden_size
    found = torch_gradients.compute_torch_gradients(
        loaded, windows, np.eye(width, dtype=np.float32), 2
    )
    assert torch_gradients.removes_ones(found, width) == (name in LAYER_NORM_FIRST), (
        torch_gradients.ones_share(found)
    )
    missing = {part for part, rows in found.weights.items() if np.isnan(rows).all()}
    assert missing == MISSING.get(name, set())
    for part, blocks in torch_gradients.collect_torch_matrices(loaded).items():
        assert found.weights[part].shape == (len(blocks) or 1, width if blocks else 1, width), part
    slope_NPD = np.empty_like(found.gradient_NPD)
    slope_NPD[:, windows.picks_JQ[0]] = found.gradient_NPD  # by place
    for n in (0, loaded.blocks // 2, loaded.blocks):
        long = np.linalg.norm(slope_NPD[n])
        way = torch.from_numpy(slope_NPD[n].reshape(2, 12, width) / long)
        ends = [loss_with(loaded, windows, n, way * by / long) for by in (NATS, -NATS)]
        assert ends[0] - ends[1] == pytest.approx(2 * NATS, rel=3e-3), n


def test_the_gradient_of_a_matrix_that_is_not_finite_is_refused(monkeypatch):
    """In float16 it can be so where every row that is picked is finite."""
    loaded, backward = build("GPT-2"), torch_gradients._backward

    def overflowing(*given):
        found = backward(*given)
        found[-1][0, 0] = torch.inf
        return found

    monkeypatch.setattr(torch_gradients, "_backward", overflowing)
    width = loaded.model.config.hidden_size
    with pytest.raises(
        UserError,
        match="gradient of a matrix holds numbers that are not finite, computed in float32",
    ):
        torch_gradients.compute_torch_gradients(
            loaded, windows_of(36, 12, 2, 1, 24), np.eye(width, dtype=np.float32), 2
        )


def loss_with(loaded, windows, n, added):
    """The loss where something is added to the stream at layer n."""
    seen = []

    def before(module, args, given):
        seen.append(module)
        if n > 0 or len(seen) > 1:
            return args, given
        if args:
            return (args[0] + added, *args[1:]), given
        return args, given | {WORD: given[WORD] + added}

    def after(module, args, found):
        if len(seen) == n:
            return (found[0] + added, *found[1:]) if isinstance(found, tuple) else found + added

    blocks = loaded.block_modules
    hooks = [block.register_forward_pre_hook(before, with_kwargs=True) for block in blocks]
    hooks += [block.register_forward_hook(after) for block in blocks]
    part = next(torch_gradients.split_folds(windows, 2))
    _, loss_BT = torch_gradients._forward(loaded, windows, part)
    for hook in hooks:
        hook.remove()
    return float((loss_BT.detach().double() * torch.from_numpy(windows.weights_JWT[0])).sum())
