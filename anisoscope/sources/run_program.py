"""Read the checkpoints of a run by one compiled forward pass, and measure what it reads.

Letters: G batches of windows, S sets of positions, M positions of a fold, Z inputs of a batch.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.metrics.quantity import Values
from anisoscope.metrics.registry import FAMILIES, select_kind
from anisoscope.models import transformer
from anisoscope.models.masks import list_unused_settings, visible_keys
from anisoscope.sources import activations
from anisoscope.sources.activations import BatchActivations
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, add_types, make_probe
from anisoscope.sources.massive_tokens import find_massive_tokens
from anisoscope.training.objective import OBJECTIVES, make_batch
from anisoscope.utils import mesh
from anisoscope.utils.settings import replace

OTHERS = ("previous", "last")  # references of the family comparison


def draw_probe(config: Config, corpus: Corpus) -> Probe:
    """Draw the windows to measure, masked as in training if `measure.masked` is set."""
    measure = config.measure
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    probe = make_probe(corpus.valid, config.model.context, *sizes)
    if OBJECTIVES[config.objective].random_targets:
        # in unmasked text, the target is the character at the position
        parts = [(tokens_GWT, tokens_GWT) for tokens_GWT in (probe.tokens_GWT, probe.shuffled_GWT)]
        if measure.masked:
            parts = [mask_as_in_training(config, corpus, tokens_GWT) for tokens_GWT, _ in parts]
        (tokens_GWT, target_GWT), (shuffled_GWT, shuffled_target_GWT) = parts
        target_GZWT = np.stack([target_GWT, shuffled_target_GWT], axis=1)
        probe = probe._replace(
            tokens_GWT=tokens_GWT, shuffled_GWT=shuffled_GWT, target_GZWT=target_GZWT
        )
    if config.model.same_first:  # as such a model reads them; the first character is never a target
        for tokens_GWT in (probe.tokens_GWT, probe.shuffled_GWT):
            tokens_GWT[..., 0] = corpus.mask_token
        if probe.target_GZWT is not None:
            probe.target_GZWT[..., 0] = -1
    return probe


def mask_as_in_training(
    config: Config, corpus: Corpus, tokens_GWT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mask characters as in a training batch; also return the hidden characters, -1 elsewhere.

    Each window draws its own mask, the same at every step.
    """
    windows_BT = tokens_GWT.reshape(-1, tokens_GWT.shape[-1])
    windows_BL = np.concatenate([windows_BT, windows_BT[:, -1:]], axis=1)  # the last is never read
    key, examples_B = jax.random.key(config.measure.seed), np.arange(len(windows_BL))
    batch = make_batch(config, windows_BL, key, examples_B, corpus.mask_token)
    target_BT = np.where(np.asarray(batch.weights_BT) > 0, batch.targets_BT, -1)
    shape = tokens_GWT.shape
    return np.array(batch.tokens_BT).reshape(shape), target_BT.reshape(shape)


@dataclass(frozen=True)
class RunProgram:
    """The forward pass of a run, in float32, and what all of its checkpoints share."""

    config: Config
    hook_points: tuple[str, ...]
    forward: Callable[..., tuple]  # (params, tokens_ZWT, visible_TT, number of the hook point)
    probe: Probe
    visible_TT: np.ndarray

    def measure(
        self, params: dict, references: dict[str, dict], hook_point: int = 0
    ) -> tuple[dict[str, Values], list[np.ndarray]]:
        """Measure a checkpoint, {sample: {quantity: (batch, positions, …, R)}}.

        Also return which vectors of each batch are massive, (L, P), with `measure.without_massive`.
        `references` are the parameters to compare with, by the names in `OTHERS`. Where the program
        measures hook points, this is the number of one.
        """
        settings = self.config.measure
        first_TT = np.ones_like(self.visible_TT)
        first_TT[0] = first_TT[:, 0] = False  # neither query nor key
        visible_STT = np.stack([self.visible_TT, self.visible_TT & first_TT])
        params, references = place_params(self.config, (params, references))

        def measure_batch(g: int) -> tuple[dict[str, Values], np.ndarray | None]:
            read_Z = self._read(params, g, hook_point)
            reference_clouds = {
                name: self._forward(other, self.probe.tokens_GWT[g][None])[0][0]
                for name, other in references.items()
            }
            picks_SP, massive = self.probe.picks_SGP[:, g], None
            if settings.without_massive:
                massive = find_massive_tokens(read_Z.resid_ZLBTD, self.probe.order_GJM[g])
            values = activations.measure_batch(
                g, read_Z, reference_clouds, picks_SP, visible_STT, settings, massive
            )
            return values, None if massive is None else massive.massive_ZLP[0]

        sets = len(POSITION_SETS) + settings.without_massive
        batches = mesh.map_over_devices(measure_batch, settings.batches, sets)
        values, marks = zip(*batches, strict=True)
        return activations.join_batches([*values]), [x for x in marks if x is not None]

    def _read(self, params: dict, g: int, hook_point: int) -> BatchActivations:
        """Read the inputs of a batch, with all that families need."""
        inputs, probe = len(activations.input_names(self.config.measure)), self.probe
        tokens_ZWT = np.stack([probe.tokens_GWT[g], probe.shuffled_GWT[g]][:inputs])
        types_Z = jax.tree.map(lambda x_G: x_G[g], probe.types)
        read_Z = BatchActivations(*self._forward(params, tokens_ZWT, hook_point), types_Z=types_Z)
        if "logit_lens" not in self.config.measure.families:
            return read_Z
        target_ZWT = shift_tokens(tokens_ZWT)
        if probe.target_GZWT is not None:
            target_ZWT = probe.target_GZWT[g, :inputs]
        unembedding = transformer.unembedding(self.config.model, params)
        return read_Z._replace(unembedding=unembedding, target_ZBT=target_ZWT)

    def _forward(self, params: dict, tokens_ZWT: np.ndarray, hook_point: int = 0) -> tuple:
        return self.forward(params, tokens_ZWT, self.visible_TT, np.int32(hook_point))


def place_params(config: Config, params: Any) -> Any:
    """Split parameters over devices as in training, where they are split; else leave them."""
    if config.mesh.fsdp == 1:
        return params
    sharding = mesh.parameter_sharding(mesh.make_mesh(config.mesh.data, config.mesh.fsdp), params)
    return jax.device_put(params, sharding)


def make_measure_program(
    config: Config, corpus: Corpus, hook_points: tuple[str, ...] = ()
) -> RunProgram:
    """Make the program of a run, not yet compiled.

    With `hook_points`, it measures a hook point in place of the residual stream.
    """
    measure, probe = config.measure, draw_probe(config, corpus)
    if any(FAMILIES[family].reads_types for family in measure.families):
        # types come from the unmasked text
        text = draw_probe(replace(config, {"measure.masked": False}), corpus)
        probe = probe._replace(types=add_types(text, corpus.train, corpus.vocab_size).types)
    heads = bool(select_kind(measure.families, "heads"))
    forward = _jit_forward(share_program(config.model), corpus.vocab_size, hook_points, heads)
    visible_TT = np.asarray(visible_keys(config.model, config.model.context))
    return RunProgram(config, hook_points, forward, probe, visible_TT)


def share_program(model: ModelConfig) -> ModelConfig:
    """Return settings that runs with different masks share: programs take the mask as argument."""
    model = dataclasses.replace(model, mask="bidirectional")
    unused = {name: getattr(ModelConfig(), name) for name in list_unused_settings(model)}
    return dataclasses.replace(model, **unused)


def shift_tokens(tokens_ZBT: np.ndarray) -> np.ndarray:
    """Shift to the next token of the same window; -1 at its end."""
    missing = [(0, 0)] * (tokens_ZBT.ndim - 1) + [(0, 1)]
    return np.pad(tokens_ZBT, missing, constant_values=-1)[..., 1:]


@functools.cache
def _jit_forward(
    model: ModelConfig, vocab_size: int, hook_points: tuple[str, ...], heads: bool
) -> Callable[..., tuple]:
    """Jit the forward pass: (params, tokens_ZWT, visible_TT, hook point) -> residuals, q, k.

    Runs that share model and settings share the compilation; the mask is an argument.
    """
    # written for a CPU: on an accelerator, unrolled blocks compile four times as long
    network = transformer.build(model, vocab_size, "float32", hook_points, backend="cpu")

    # Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
    @jax.default_matmul_precision("highest")
    def forward(params: dict, tokens_ZWT: Array, visible_TT: Array, hook_point: Array) -> tuple:
        def read(tokens_WT: Array) -> tuple:
            _, activations = network.apply(params, tokens_WT, visible_TT=visible_TT)
            if hook_points:
                hooked = jnp.stack([activations.hooked_NBTD[name] for name in hook_points])
                return hooked[hook_point], None, None
            return tuple(activations[:3]) if heads else (activations.resid_LBTD, None, None)

        return jax.lax.map(read, tokens_ZWT)

    # On a GPU XLA would try dozens of Triton's kernels for every product of float32.
    gpu = jax.default_backend() == "gpu"
    options = {"xla_gpu_enable_triton_gemm": False} if gpu else None
    return jax.jit(forward, compiler_options=options)
