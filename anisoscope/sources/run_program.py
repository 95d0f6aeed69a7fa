"""The programs that measure the checkpoints of a run: compiled once for all of them, and spread
over the devices.

Letters: G probe batches, S sets of positions, Z inputs of a batch.
"""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.panel import MEASURED, estimate_cloud_bytes
from anisoscope.measurement.resampling import Searched
from anisoscope.models import transformer
from anisoscope.models.masks import list_unused_settings, visible_keys
from anisoscope.sources.activations import (
    Batches,
    Measured,
    Spec,
    batch_keys,
    make_activate,
    measure_batches,
    probe_batches,
    search_batches,
)
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, make_probe, with_types
from anisoscope.training.objective import OBJECTIVES
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig
from anisoscope.utils.settings import replace

OTHERS = ("previous", "last")  # what the family comparison compares a checkpoint with


def probe_of(config: Config, corpus: Corpus) -> Probe:
    """Draw the windows that are measured, masked as in training where `measure.masked` says so."""
    measure = config.measure
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    probe = make_probe(corpus.valid, config.model.context, *sizes, measure.weighting)
    if OBJECTIVES[config.objective].random_targets:
        texts_GZWT = np.stack([probe.tokens_GWT, probe.shuffled_GWT], axis=1)
        target_GZWT = texts_GZWT.copy()  # of text that is all there, what stands at the position
        if measure.masked:
            for z in range(texts_GZWT.shape[1]):
                texts_GZWT[:, z], target_GZWT[:, z] = mask_as_in_training(
                    config, corpus, texts_GZWT[:, z]
                )
        probe = probe._replace(
            tokens_GWT=texts_GZWT[:, 0], shuffled_GWT=texts_GZWT[:, 1], target_GZWT=target_GZWT
        )
    if config.model.same_first:  # as such a model reads them; what stands there is never told
        for tokens_GWT in (probe.tokens_GWT, probe.shuffled_GWT):
            tokens_GWT[..., 0] = corpus.mask_token
        if probe.target_GZWT is not None:
            probe.target_GZWT[..., 0] = -1
    return probe


def mask_as_in_training(
    config: Config, corpus: Corpus, tokens_GWT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mask characters as a batch of training has them; the second array has what these are, or -1.

    Each window draws its own, the same at every step.
    """
    windows_BT = tokens_GWT.reshape(-1, tokens_GWT.shape[-1])
    windows_BL = np.concatenate([windows_BT, windows_BT[:, -1:]], axis=1)  # the last is no input
    key, examples_B = jax.random.key(config.measure.seed), np.arange(len(windows_BL))
    batch = OBJECTIVES[config.objective].batch(
        config.model, windows_BL, key, examples_B, corpus.mask_token
    )
    target_BT = np.where(np.asarray(batch.weights_BT) > 0, batch.targets_BT, -1)
    shape = tokens_GWT.shape
    return np.asarray(batch.tokens_BT).reshape(shape), target_BT.reshape(shape)


class Reference(NamedTuple):
    """A checkpoint to compare with, and the neighbors that the search found in it."""

    params: dict
    nearest_GS: Searched


@dataclass(frozen=True)
class RunProgram:
    """The two compiled programs of a run, and their arguments that every checkpoint shares.

    `search_jit(params, fixed)` finds the neighbors that comparisons read; `measure_jit(params,
    references, nearest, fixed)` every value. Both are in float32 whatever the run was trained in.
    """

    search_jit: Callable[..., Searched]
    measure_jit: Callable[..., Measured]
    fixed: "Fixed"
    params_sharding: Any
    nearest_sharding: Any

    def search(self, params: dict) -> Searched:
        """Find the neighbors of every point; they stay on the devices."""
        return self.search_jit(jax.device_put(params, self.params_sharding), self.fixed)

    def measure(
        self, checkpoint: Reference, references: dict[str, Reference], hook_point: int = 0
    ) -> Measured:
        """Measure a checkpoint, in NumPy.

        Args:
            checkpoint: Its parameters, and their neighbors; None where nothing is compared.
            references: The checkpoints that it is compared with, {"previous": …, "last": …}, or {}.
            hook_point: Which of the hook points to measure, where the program is one of these.
        """
        compared = {MEASURED: checkpoint} | references if references else {}
        nearest = {name: other.nearest_GS for name, other in compared.items()} or None
        params, others = jax.device_put(
            (checkpoint.params, {name: other.params for name, other in references.items()}),
            (self.params_sharding, dict.fromkeys(references, self.params_sharding)),
        )
        nearest = jax.device_put(nearest, self.nearest_sharding)
        fixed = self.fixed._replace(hook_point=np.int32(hook_point))
        return jax.device_get(self.measure_jit(params, others, nearest, fixed))

    def compile(self, params: dict, compared: bool) -> None:
        """Compile what the first calls would: later calls in this process find it."""
        params = _shapes(params, self.params_sharding)
        others, nearest = {}, None
        if compared:
            self.search_jit.lower(params, self.fixed).compile()
            found = jax.eval_shape(self.search_jit, params, self.fixed)
            names = (MEASURED, *OTHERS)
            nearest = dict.fromkeys(names, _shapes(found, self.nearest_sharding))
            others = dict.fromkeys(OTHERS, params)
        self.measure_jit.lower(params, others, nearest, self.fixed).compile()


class Fixed(NamedTuple):
    """The arguments that do not change from checkpoint to checkpoint."""

    probe: Probe
    seed: np.int32
    visible_TT: jax.Array
    hook_point: np.int32


def _shapes(tree: Any, shardings: Any) -> Any:
    """Describe what `jax.device_put` would give, without the numbers."""
    shardings = jax.tree.broadcast(shardings, tree)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings
    )


def shapes_of_params(config: Config, corpus: Corpus) -> dict:
    model = transformer.build(config.model, corpus.vocab_size)
    return jax.eval_shape(model.init, jax.random.key(0))


def compile_program(config: Config, corpus: Corpus) -> None:
    """Compile the programs of a run of which nothing is measured yet."""
    compared = "comparison" in config.measure.families
    make_program(config, corpus).compile(shapes_of_params(config, corpus), compared)


def make_program(
    config: Config, corpus: Corpus, hook_points: tuple[str, ...] = (), apart: bool = False
) -> RunProgram:
    """Make the programs of a run, not yet compiled.

    With `hook_points`, they measure one of these in place of the residual stream. Where processes
    work `apart`, they are programs of this process and its devices alone.
    """
    params, measure = shapes_of_params(config, corpus), config.measure
    probe = probe_of(config, corpus)
    if any(FAMILIES[family].reads_types for family in measure.families):
        # what stands there, masked or not
        text = probe_of(replace(config, {"measure.masked": False}), corpus)
        probe = probe._replace(types=with_types(text, corpus.train, corpus.vocab_size).types)
    shared = mesh.measuring_mesh(measure.batches, len(POSITION_SETS), apart)
    if shared is not None:
        devices, parts = shared, P(mesh.UNITS[0])
        params_sharding = NamedSharding(devices, P())
    else:  # windows may be shared out: of that only the model's own work is less for each device
        devices = mesh.make_mesh(config.mesh, apart)
        divides = probe.tokens_GWT.shape[1] % devices.size == 0
        parts = P(None, mesh.AXES) if divides else P()
        params_sharding = mesh.parameter_sharding(devices, params)
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe_sharding = Probe(
        tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole, types=whole, target_GZWT=whole
    )
    visible_TT = jax.device_put(np.asarray(visible_keys(config.model, config.model.context)), whole)
    # runs whose masks differ share a program: which keys a query sees is data
    model = dataclasses.replace(config.model, mask="bidirectional")
    model = dataclasses.replace(
        model, **{name: getattr(ModelConfig(), name) for name in list_unused_settings(model)}
    )
    settings = dataclasses.replace(measure, seed=0)  # which is an argument
    by_units = shared is not None
    search_jit, measure_jit, nearest_sharding = _jitted(
        model, settings, corpus.vocab_size, devices, by_units, config.mesh, hook_points
    )
    fixed = Fixed(
        jax.device_put(probe, probe_sharding), np.int32(measure.seed), visible_TT, np.int32(0)
    )
    return RunProgram(search_jit, measure_jit, fixed, params_sharding, nearest_sharding)


@functools.cache
def _jitted(
    model: ModelConfig,
    settings: MeasureConfig,
    vocab_size: int,
    devices: Mesh,
    by_units: bool,
    layout: MeshConfig,
    hook_points: tuple[str, ...],
) -> tuple[Callable[..., Searched], Callable[..., Measured], NamedSharding]:
    """Jit both programs: runs of an experiment that share model and settings compile them once."""
    network = transformer.build(model, vocab_size, "float32", hook_points)

    def apply(given: tuple, tokens_BT: jax.Array) -> tuple[jax.Array, transformer.Activations]:
        params, fixed = given
        logits_BTV, activations = network.apply(params, tokens_BT, visible_TT=fixed.visible_TT)
        if hook_points:
            hooked = jnp.stack([activations.hooked_NBTD[name] for name in hook_points])
            activations = transformer.Activations(hooked[fixed.hook_point], None, None)
        return logits_BTV, activations

    spread = by_units and devices.size > 1
    apply_shared = mesh.over_windows(devices, apply) if spread else apply
    size = estimate_cloud_bytes(settings.points, model.width, settings.families)
    over = {"over_clouds": mesh.over_clouds(layout, size)}
    over |= {"over_units": mesh.over_units(devices)} if spread else {}

    def spec(settings: MeasureConfig) -> Spec:
        activate = make_activate(
            apply_shared, settings, lambda given: transformer.unembedding(model, given[0])
        )
        return Spec(activate, settings, **over)

    def batches(fixed: Fixed) -> Batches:
        return probe_batches(
            fixed.probe, batch_keys(fixed.seed, settings.batches), fixed.visible_TT
        )

    def search(params: dict, fixed: Fixed) -> Searched:
        plain = dataclasses.replace(settings, families=("comparison",), nulls=())
        return search_batches(spec(plain), (params, fixed), batches(fixed))

    def measure(
        params: dict,
        references: dict[str, dict],
        nearest: dict[str, Searched] | None,
        fixed: Fixed,
    ) -> Measured:
        others = {name: (other, fixed) for name, other in references.items()}
        return measure_batches(spec(settings), (params, fixed), others, batches(fixed), nearest)

    whole = NamedSharding(devices, P())
    units = NamedSharding(devices, P(*mesh.UNITS) if by_units else P())
    return (
        jax.jit(search, out_shardings=units),
        jax.jit(measure, out_shardings=Measured(whole, whole)),
        units,
    )
