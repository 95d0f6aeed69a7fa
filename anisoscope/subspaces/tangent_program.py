"""One compiled program for all checkpoints of a run: states and gradients on the windows, proxies,
and their tests.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.models.masks import idle, visible_keys
from anisoscope.subspaces import proxies, states_and_gradients, tested_proxies, weight_gradients
from anisoscope.subspaces.gradient_inputs import Windows
from anisoscope.subspaces.proxies import Fitted, Frames
from anisoscope.subspaces.scored_windows import make_windows
from anisoscope.subspaces.tested_proxies import Tested


class Program(NamedTuple):
    """Jitted, of one run; `params` as they were saved."""

    activations: Callable[[Any], Array]  # of the windows to fit on: (layer, P, D)
    fit: Callable[[Array], Fitted]
    # params, {fit: Frames}, {"between": Rows, "step": Rows} -> Tested
    test: Callable[[Any, dict[str, Frames], dict[str, weight_gradients.Rows]], Tested]


def make_program(config: RunConfig, tangents: TangentsConfig, corpus: Corpus) -> Program:
    to_fit, to_test = make_windows(config, tangents, corpus)
    model = dataclasses.replace(config.model, mask="bidirectional", dtype="float32")
    model = dataclasses.replace(
        model, **{name: getattr(ModelConfig(), name) for name in idle(model)}
    )
    visible_TT = np.asarray(visible_keys(config.model, config.model.context))
    activations, fit, test = computations(model, tangents, corpus.vocab_size)
    return Program(
        activations=lambda params: activations(params, to_fit, visible_TT),
        fit=fit,
        test=lambda params, given, moved: jax.device_get(
            test(params, (to_fit, to_test), visible_TT, given, moved)
        ),
    )


@functools.cache
def computations(
    model: ModelConfig, tangents: TangentsConfig, vocab_size: int
) -> tuple[Callable, Callable, Callable]:
    """Of runs that share model and settings, whatever their masks and objectives: these are
    data.
    """
    network, basis_DD = (
        transformer.build(model, vocab_size, "float32"),
        states_and_gradients.coordinates(model),
    )

    def activations(params: Any, windows: Windows, visible_TT: Array) -> Array:
        return states_and_gradients.activations(network, params, windows, visible_TT, basis_DD)

    def test(params: Any, windows: tuple, visible_TT: Array, given: dict, moved: dict) -> Tested:
        to_fit, to_test = windows
        cloud_NPD = activations(params, to_fit, visible_TT)
        read_now = states_and_gradients.states_and_gradients(
            network, params, to_test, visible_TT, basis_DD
        )
        return tested_proxies.test(cloud_NPD, read_now, to_test, basis_DD, given, moved, tangents)

    def precise(work: Callable) -> Callable:
        return jax.jit(jax.default_matmul_precision("highest")(work))

    return (
        precise(activations),
        precise(lambda cloud_NPD: proxies.fit(cloud_NPD, tangents)),
        precise(test),
    )
