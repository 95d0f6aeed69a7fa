"""Our network and transformers' own with the same weights: streams, queries, keys and logits."""

import jax
import numpy as np
import pytest
import torch

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.transformer import build
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.sources.hf.extract import read_activations
from tests.sources.hf import own_in_torch, tiny_models


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_our_network_is_the_one_of_transformers(positions):
    model = ModelConfig(layers=3, width=24, heads=3, context=12, position_encoding=positions)
    network = build(model, tiny_models.VOCABULARY, "float32")
    # scores far from 0
    params = jax.tree.map(lambda leaf: 4 * leaf + 0.05, network.init(jax.random.key(0)))
    logits_BTV, ours = jax.jit(network.apply)(params, tokens_BT := tiny_models.tokens())
    theirs = own_in_torch.in_torch(model, params)
    with torch.no_grad():
        own_BTV = theirs(torch.tensor(tokens_BT).long()).logits.numpy()
    np.testing.assert_allclose(logits_BTV, own_BTV, atol=1e-4)
    loaded = tiny_models.as_loaded(theirs, find_adapter(theirs.config.model_type))
    resid_NBTD, q_NBTHK, k_NBTHK = (
        x[0] for x in read_activations(loaded, tokens_BT[None], 2, True)[:3]
    )
    np.testing.assert_allclose(ours.resid_LBTD, resid_NBTD, atol=1e-4)
    scores, own = (
        np.einsum("nbthk,nbshk->nbhts", q, k)
        for q, k in ((ours.q_NBTHK, ours.k_NBTHK), (q_NBTHK, k_NBTHK))
    )
    np.testing.assert_allclose(scores, own, atol=1e-3, rtol=1e-4)
