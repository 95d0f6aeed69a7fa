"""The program that measures the checkpoints of a run: compiled once for all of them, and spread
over the devices.

Letters: G probe batches, S sets of positions, Z inputs of a batch.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.panel import Known, bytes_of_cloud
from anisoscope.metrics.logit_lens import Readout
from anisoscope.models import transformer
from anisoscope.models.masks import idle, visible_keys
from anisoscope.sources.activations import Measured, Spec, keys, measure_batches, of_model, of_probe
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, make_probe, with_types
from anisoscope.sources.reference_models import OTHERS, Reference
from anisoscope.training.objective import OBJECTIVES
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig
from anisoscope.utils.settings import replace


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    probe = make_probe(corpus.valid, config.model.context, *sizes, measure.weighting)
    if OBJECTIVES[config.objective].drawn:
        texts, key = (
            np.stack([probe.tokens_GWT, probe.shuffled_GWT], axis=1),
            jax.random.key(measure.seed),
        )
        target_GZWT = texts.copy()  # of text that is all there, what stands at the position
        if measure.masked:
            for z in range(texts.shape[1]):
                texts[:, z], target_GZWT[:, z] = as_in_training(config, corpus, key, texts[:, z])
        probe = probe._replace(
            tokens_GWT=texts[:, 0], shuffled_GWT=texts[:, 1], target_GZWT=target_GZWT
        )
    if config.model.same_first:  # as such a model reads them; what stands there is never told
        for tokens_GWT in (probe.tokens_GWT, probe.shuffled_GWT):
            tokens_GWT[..., 0] = corpus.mask_token
        if probe.target_GZWT is not None:
            probe.target_GZWT[..., 0] = -1
    return probe


def as_in_training(
    config: Config, corpus: Corpus, key: jax.Array, tokens_GWT: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """With characters masked as a batch of training has them, and what these are, -1 where none is
    asked for.

    Each window draws its own, the same at every step.
    """
    windows_BT = tokens_GWT.reshape(-1, tokens_GWT.shape[-1])
    windows_BL = np.concatenate([windows_BT, windows_BT[:, -1:]], axis=1)  # the last is no input
    examples_B = np.arange(len(windows_BL))
    batch = OBJECTIVES[config.objective].batch(
        config.model, windows_BL, key, examples_B, corpus.mask_token
    )
    asked_BT = np.where(np.asarray(batch.weights_BT) > 0, batch.targets_BT, -1)
    return np.asarray(batch.tokens_BT).reshape(tokens_GWT.shape), asked_BT.reshape(tokens_GWT.shape)


def make_program(
    config: Config, corpus: Corpus, hook_points: tuple[str, ...] = (), apart: bool = False
) -> Callable[..., Measured]:
    """measure(params, references) -> Measured, in NumPy: jitted once, in float32 whatever the run
    was trained in.

    Where checkpoints are compared, without references it finds nothing but `nearest_GS`, which stay
    on the devices. With `hook_points`, measure(params, {}, number) measures the number-th of these
    in place of the residual stream. Where processes work `apart`, it is a program of this process
    and its devices alone.
    """
    compute, arguments = _prepared(config, corpus, hook_points, apart)

    def measured(params: dict, references: dict[str, Reference], hook_point: int = 0) -> Measured:
        result = compute(*arguments(params, references, jax.device_put, hook_point))
        return jax.device_get(result._replace(nearest_GS=None))._replace(
            nearest_GS=result.nearest_GS
        )

    return measured


def compile_program(config: Config, corpus: Corpus) -> None:
    """Compile what the first call of `make_program` would: later calls in this process find it."""
    compute, arguments = _prepared(config, corpus, (), apart=False)
    compute.lower(*arguments(_shapes_of_params(config, corpus), {}, _shapes)).compile()


def _shapes_of_params(config: Config, corpus: Corpus) -> dict:
    return jax.eval_shape(
        transformer.build(config.model, corpus.vocab_size).init, jax.random.key(0)
    )


def _shapes(tree: Any, shardings: Any) -> Any:
    """What `jax.device_put` would give, without the numbers."""
    shardings = jax.tree.broadcast(shardings, tree)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), tree, shardings
    )


def _prepared(
    config: Config, corpus: Corpus, hook_points: tuple[str, ...], apart: bool
) -> tuple[Callable[..., Measured], Callable[..., tuple]]:
    """The jitted computation; and place(params, references, put, hook_point), its arguments as
    `put` lays them out.
    """
    params = _shapes_of_params(config, corpus)
    probe, shared = (
        probe_of(config, corpus),
        mesh.measuring_mesh(config.measure.batches, len(POSITION_SETS), apart),
    )
    if any(FAMILIES[family].of_text for family in config.measure.families):
        # what stands there, masked or not
        text = probe_of(replace(config, {"measure.masked": False}), corpus)
        probe = probe._replace(types=with_types(text, corpus.train, corpus.vocab_size).types)
    if shared is not None:
        devices, parts, units = shared, P(mesh.UNITS[0]), P(*mesh.UNITS)
        shardings = jax.tree.map(lambda _: NamedSharding(devices, P()), params)
    else:  # windows may be shared out: of that only the model's own work is less for each device
        devices = mesh.make_mesh(config.mesh, apart)
        parts, units = (
            P(None, mesh.AXES) if probe.tokens_GWT.shape[1] % devices.size == 0 else P(),
            P(),
        )
        shardings = mesh.parameter_sharding(devices, params)
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe = jax.device_put(
        probe,
        Probe(
            tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole, types=whole, target_GZWT=whole
        ),
    )
    # whose place the mask takes that is given
    model = dataclasses.replace(config.model, mask="bidirectional")
    model = dataclasses.replace(
        model, **{name: getattr(ModelConfig(), name) for name in idle(model)}
    )
    visible_TT = jax.device_put(np.asarray(visible_keys(config.model, config.model.context)), whole)
    by_units = shared is not None
    settings = dataclasses.replace(config.measure, seed=0)  # which is an argument
    compute = _computation(
        model, settings, corpus.vocab_size, devices, by_units, config.mesh, hook_points
    )
    sizes = config.measure.batches, len(POSITION_SETS)
    unknown = comparison_family.nothing_found(
        sizes, model.layers + 1, config.measure.points, config.measure.folds
    )
    compared = "comparison" in config.measure.families

    def place(
        params: dict, references: dict[str, Reference], put: Callable, hook_point: int = 0
    ) -> tuple:
        params, known, others = put(params, shardings), None, {}
        if compared:
            beside = references or dict.fromkeys(OTHERS, Reference(params, unknown))
            nearest = {name: other.nearest_GS for name, other in beside.items()}
            known = put(
                Known(nearest, np.full(sizes, bool(references))), NamedSharding(devices, units)
            )
            others = {name: put(other.params, shardings) for name, other in beside.items()}
        return (
            params,
            others,
            probe,
            np.int32(config.measure.seed),
            visible_TT,
            np.int32(hook_point),
            known,
        )

    return compute, place


@functools.cache
def _computation(
    model: ModelConfig,
    settings: MeasureConfig,
    vocab_size: int,
    devices: jax.sharding.Mesh,
    by_units: bool,
    layout: MeshConfig,
    hook_points: tuple[str, ...],
) -> Callable[..., Measured]:
    """Runs of an experiment that share model and settings compile it once, whatever their masks:
    these are data.
    """
    network = transformer.build(model, vocab_size, "float32", hook_points)

    def apply(given: tuple, tokens_BT: jax.Array) -> tuple[jax.Array, transformer.Activations]:
        params, visible_TT, hook_point = given
        logits_BTV, activations = network.apply(params, tokens_BT, visible_TT=visible_TT)
        if hook_points:
            of_point_NBTD = jnp.stack([activations.hooked_NBTD[name] for name in hook_points])[
                hook_point
            ]
            activations = transformer.Activations(of_point_NBTD, None, None)
        return logits_BTV, activations

    def readout(given: tuple) -> Readout:
        return transformer.readout(model, given[0])

    over_clouds = mesh.over_clouds(
        layout, bytes_of_cloud(settings.points, model.width, settings.families)
    )
    spec = Spec(of_model(apply, settings, readout), settings, over_clouds=over_clouds)
    if by_units and devices.size > 1:
        activate = of_model(mesh.over_windows(devices, apply), settings, readout)
        spec = Spec(activate, settings, mesh.over_units(devices), over_clouds)

    def measured(
        params: dict,
        references: dict[str, dict],
        probe: Probe,
        seed: jax.Array,
        visible_TT: jax.Array,
        hook_point: jax.Array,
        known: Known | None,
    ) -> Measured:
        beside = {name: (other, visible_TT, hook_point) for name, other in references.items()}
        batches = of_probe(probe, keys(seed, settings.batches), visible_TT, known)
        return measure_batches(spec, (params, visible_TT, hook_point), beside, batches)

    whole, units = (
        NamedSharding(devices, P()),
        NamedSharding(devices, P(*mesh.UNITS) if by_units else P()),
    )
    return jax.jit(measured, out_shardings=Measured(whole, whole, units))
