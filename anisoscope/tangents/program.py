"""One compiled program for all checkpoints of a run: states and gradients on the windows, proxies, and their tests."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.model import ModelConfig
from anisoscope.config.run import RunConfig
from anisoscope.config.tangents import TangentsConfig
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.models.masks import idle, visible_keys
from anisoscope.tangents import proxies, read, tested, written
from anisoscope.tangents.inputs import Windows
from anisoscope.tangents.proxies import Fitted, Frames
from anisoscope.tangents.rows import make_windows
from anisoscope.tangents.tested import Tested


class Program(NamedTuple):
    """Jitted, of one run; `params` as they were saved."""

    activations: Callable[[Any], Array]  # of the windows to fit on: (layer, P, D)
    fit: Callable[[Array], Fitted]
    # params, {fit: Frames}, {"between": Rows, "step": Rows} -> Tested
    test: Callable[[Any, dict[str, Frames], dict[str, written.Rows]], Tested]


def make_program(config: RunConfig, tangents: TangentsConfig, corpus: Corpus) -> Program:
    to_fit, to_test = make_windows(config, tangents, corpus)
    model = dataclasses.replace(config.model, mask="bidirectional", dtype="float32")
    model = dataclasses.replace(model, **{name: getattr(ModelConfig(), name) for name in idle(model)})
    visible_TT = np.asarray(visible_keys(config.model, config.model.context))
    activations, fit, test = computations(model, tangents, corpus.vocab_size)
    return Program(
        activations=lambda params: activations(params, to_fit, visible_TT),
        fit=fit,
        test=lambda params, given, moved: jax.device_get(test(params, (to_fit, to_test), visible_TT, given, moved)),
    )


@functools.cache
def computations(model: ModelConfig, tangents: TangentsConfig, vocab_size: int) -> tuple[Callable, Callable, Callable]:
    """Of runs that share model and settings, whatever their masks and objectives: these are data."""
    network, basis_DD = transformer.build(model, vocab_size, "float32"), read.coordinates(model)

    def activations(params: Any, windows: Windows, visible_TT: Array) -> Array:
        return read.activations(network, params, windows, visible_TT, basis_DD)

    def test(params: Any, windows: tuple, visible_TT: Array, given: dict, moved: dict) -> Tested:
        to_fit, to_test = windows
        cloud_NPD = activations(params, to_fit, visible_TT)
        read_now = read.states_and_gradients(network, params, to_test, visible_TT, basis_DD)
        return tested.test(cloud_NPD, read_now, to_test, basis_DD, given, moved, tangents)

    def precise(work: Callable) -> Callable:
        return jax.jit(jax.default_matmul_precision("highest")(work))

    return precise(activations), precise(lambda cloud_NPD: proxies.fit(cloud_NPD, tangents)), precise(test)
