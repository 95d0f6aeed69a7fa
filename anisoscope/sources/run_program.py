"""Compile the program that measures all checkpoints of a run, and distribute it over devices.

Letters: G batches of windows, S sets of positions, Z inputs of a batch.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.panel import Over, estimate_cloud_bytes
from anisoscope.metrics.logit_lens import Unembedding
from anisoscope.models import transformer
from anisoscope.models.masks import list_unused_settings, visible_keys
from anisoscope.sources.activations import (
    Measured,
    Read,
    batch_keys,
    input_names,
    measure_positions,
)
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, add_types, make_probe
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
        probe = Probe(tokens_GWT, shuffled_GWT, probe.picks_SGP, probe.types, target_GZWT)
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
    """The program of a run, in float32, and the arguments that every checkpoint shares."""

    measure_jit: Callable[..., Measured]  # (params, references, fixed)
    fixed: "Fixed"
    params_sharding: Any

    def measure(self, params: dict, references: dict[str, dict], hook_point: int = 0) -> Measured:
        """Measure a checkpoint, in NumPy, at this hook point if the program measures any.

        `references` are the parameters to compare with, by the names in `OTHERS`.
        """
        sharding = self.params_sharding, dict.fromkeys(references, self.params_sharding)
        params, references = jax.device_put((params, references), sharding)
        fixed = self.fixed._replace(hook_point=np.int32(hook_point))
        return jax.device_get(self.measure_jit(params, references, fixed))


class Fixed(NamedTuple):
    """The arguments that are equal for all checkpoints."""

    probe: Probe
    seed: np.int32
    visible_TT: jax.Array
    hook_point: np.int32


def param_shapes(config: Config, corpus: Corpus) -> dict:
    model = transformer.build(config.model, corpus.vocab_size)
    return jax.eval_shape(model.init, jax.random.key(0))


def make_measure_program(
    config: Config, corpus: Corpus, hook_points: tuple[str, ...] = ()
) -> RunProgram:
    """Make the program of a run, not yet compiled.

    With `hook_points`, it measures a hook point in place of the residual stream.
    """
    params, measure = param_shapes(config, corpus), config.measure
    probe = draw_probe(config, corpus)
    if any(FAMILIES[family].reads_types for family in measure.families):
        # types come from the unmasked text
        text = draw_probe(replace(config, {"measure.masked": False}), corpus)
        probe = probe._replace(types=add_types(text, corpus.train, corpus.vocab_size).types)
    shared = mesh.measuring_mesh(measure.batches, len(POSITION_SETS))
    if shared is not None:
        devices, parts = shared, P(mesh.UNITS[0])
        params_sharding = NamedSharding(devices, P())
    else:  # windows may be distributed, which divides only the work of the model
        devices = mesh.make_mesh(config.mesh.data, config.mesh.fsdp)
        divides = probe.tokens_GWT.shape[1] % devices.size == 0
        parts = P(None, mesh.MESH_AXES) if divides else P()
        params_sharding = mesh.parameter_sharding(devices, params)
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe_sharding = Probe(split, split, picks_SGP=whole, types=whole, target_GZWT=whole)
    visible_TT = jax.device_put(np.asarray(visible_keys(config.model, config.model.context)), whole)
    settings = dataclasses.replace(measure, seed=0)  # the seed is an argument
    measure_jit = _jit_program(
        share_program(config.model),
        settings,
        corpus.vocab_size,
        devices,
        shared is not None,
        config.mesh.clouds,
        hook_points,
    )
    probe = jax.device_put(probe, probe_sharding)
    fixed = Fixed(probe, np.int32(measure.seed), visible_TT, np.int32(0))
    return RunProgram(measure_jit, fixed, params_sharding)


def share_program(model: ModelConfig) -> ModelConfig:
    """Return settings that runs with different masks share: programs take the mask as argument."""
    model = dataclasses.replace(model, mask="bidirectional")
    unused = {name: getattr(ModelConfig(), name) for name in list_unused_settings(model)}
    return dataclasses.replace(model, **unused)


def measure_probe(
    apply: Callable[[Any, Array], tuple[Array, Any]],
    params: Any,
    references: dict[str, Any],
    probe: Probe,
    seed: int | Array,
    visible_TT: Array,
    settings: MeasureConfig,
    unembedding: Callable[[Any], Unembedding] | None = None,
    over_units: Callable[[Callable], Callable] = lambda work: work,
    over_clouds: Over = jax.lax.map,
) -> Measured:
    """Measure a network on every batch of windows, one after another; pure and un-jitted.

    There are two sets of positions: all positions, and all but the first token. The second drops
    the first vector of each window from the clouds, and the first token from attention as query and
    as key: how sharp is attention without a sink on it?

    `apply` is (params, tokens_BT) -> (logits, Activations), `references` are parameters to compare
    with, and `unembedding` is params -> the map from a vector to logits. The logit lens predicts the
    next token, unless the probe has targets. `over_units` distributes batches and sets of positions
    over devices, `over_clouds` clouds and heads.
    """
    visible_STT = jnp.stack([visible_TT, visible_TT.at[0].set(False).at[:, 0].set(False)])
    inputs = len(input_names(settings))

    def read(params: Any, probe_G: Probe) -> Read:
        tokens_ZWT = jnp.stack([probe_G.tokens_GWT, probe_G.shuffled_GWT][:inputs])
        activations_Z = jax.lax.map(lambda tokens_WT: apply(params, tokens_WT)[1], tokens_ZWT)
        read_Z = Read(*activations_Z[:3], types_Z=probe_G.types)
        if "logit_lens" not in settings.families:
            return read_Z
        target_ZWT = probe_G.target_GZWT
        target_ZWT = shift_tokens(tokens_ZWT) if target_ZWT is None else target_ZWT[:inputs]
        return read_Z._replace(unembedding=unembedding(params), target_ZBT=target_ZWT)

    # Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
    @jax.default_matmul_precision("highest")
    def over_batches(
        params: Any, references: Any, each_G: tuple, picks_GSP: Array, visible_STT: Array
    ) -> Measured:
        def measure_batch(batch: tuple) -> Measured:
            (probe_G, key), picks_SP = batch
            read_Z = read(params, probe_G)
            others = {
                name: apply(other, probe_G.tokens_GWT)[1].resid_LBTD
                for name, other in references.items()
            }

            def measure_set(positions: tuple[Array, Array]) -> Measured:
                return measure_positions(read_Z, others, *positions, key, settings, over_clouds)

            return jax.lax.map(measure_set, (picks_SP, visible_STT))

        return jax.lax.map(measure_batch, (each_G, picks_GSP))

    key_G, picks_GSP = batch_keys(seed, len(probe.tokens_GWT)), jnp.swapaxes(probe.picks_SGP, 0, 1)
    each_G = probe._replace(picks_SGP=None), key_G
    run = over_units(over_batches)
    return run(params, references, each_G, picks_GSP, visible_STT)


def shift_tokens(tokens_ZBT: Array) -> Array:
    """Shift to the next token of the same window; -1 at its end."""
    missing = [(0, 0)] * (tokens_ZBT.ndim - 1) + [(0, 1)]
    return jnp.pad(tokens_ZBT, missing, constant_values=-1)[..., 1:]


@functools.cache
def _jit_program(
    model: ModelConfig,
    settings: MeasureConfig,
    vocab_size: int,
    devices: Mesh,
    by_units: bool,
    clouds_at_once: int | None,
    hook_points: tuple[str, ...],
) -> Callable[..., Measured]:
    """Jit the program; runs that share model and settings share the compilation."""
    # written for a CPU: on an accelerator, unrolled blocks compile four times as long
    network = transformer.build(model, vocab_size, "float32", hook_points, backend="cpu")

    def apply(arguments: tuple, tokens_BT: jax.Array) -> tuple[jax.Array, transformer.Activations]:
        params, fixed = arguments
        logits_BTV, activations = network.apply(params, tokens_BT, visible_TT=fixed.visible_TT)
        if hook_points:
            hooked = jnp.stack([activations.hooked_NBTD[name] for name in hook_points])
            activations = transformer.Activations(hooked[fixed.hook_point], None, None)
        return logits_BTV, activations

    spread = by_units and devices.size > 1
    apply_shared = mesh.over_windows(devices, apply) if spread else apply
    size = estimate_cloud_bytes(settings.points, model.width, settings.families)
    over = {"over_clouds": mesh.over_clouds(clouds_at_once, size)}
    over |= {"over_units": mesh.over_units(devices)} if spread else {}

    def unembedding(arguments: tuple) -> Unembedding:
        return transformer.unembedding(model, arguments[0])

    def measure(params: dict, references: dict[str, dict], fixed: Fixed) -> Measured:
        others = {name: (other, fixed) for name, other in references.items()}
        windows = fixed.probe, fixed.seed, fixed.visible_TT
        return measure_probe(
            apply_shared, (params, fixed), others, *windows, settings, unembedding, **over
        )

    # On a GPU XLA would try dozens of Triton's kernels for every product of float32.
    gpu = jax.default_backend() == "gpu"
    options = {"xla_gpu_enable_triton_gemm": False} if gpu else None
    whole = NamedSharding(devices, P())
    return jax.jit(measure, out_shardings=whole, compiler_options=options)
