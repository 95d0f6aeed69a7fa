"""Models whose blocks give maps, of other sizes and widths from stage to stage: a cloud for each
block.

All clouds have the same number of points. A point is a cell of the coarsest map, drawn at random;
in a finer map it is one of the cells below that one, drawn at random too, and the same for all maps
of that size. So clouds of two layers are of the same places, and can be compared. Arrays carry the
letters of `models`, and Z inputs, W windows, G probe batches, S sets of positions.
"""

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import layer_keys
from anisoscope.measurement.panel import MEASURED, Sample, bytes_of_cloud, panel
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places
from anisoscope.sources.activations import Measured, inputs_of, keys
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import forward
from anisoscope.sources.hf.reading_plan import Plan, measure_batches
from anisoscope.sources.hf.residuals import Residuals
from anisoscope.utils import mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.layout import MeshConfig

OF = ("cloud", "layers")  # families; heads and what they see change from stage to stage too
CLOSE = 1e-3  # relative to the largest number of a map
Size = tuple[int, int]  # height and width
Shape = tuple[int, int, int]  # and number of channels


class Picked(NamedTuple):
    """Where points are: the window, and the cell of each size of map."""

    window_P: np.ndarray
    cell_P: dict[Size, tuple[np.ndarray, np.ndarray]]


@contextmanager
def listening(loaded: PretrainedModel, on_map: Any) -> Iterator[None]:
    """Tells on_map(n, x_BHWD) of the input of the first block and of the output of every block.

    Blocks give maps (B, D, H, W), or rows of them (B, HW, D) and take their size beside; the class
    token that some have in front is no place of a map.
    """
    count = 0

    def tell(x: Any, given: tuple) -> None:
        nonlocal count
        if x.ndim == 4:
            x_BHWD = x.permute(0, 2, 3, 1)
        else:
            height, width = given[1:3]
            x_BHWD = x[:, -height * width :].unflatten(1, (height, width))
        on_map(count, x_BHWD)
        count += 1

    def before(_: Any, args: tuple) -> None:
        if count == 0:
            tell(args[0], args)

    def after(_: Any, args: tuple, output: Any) -> None:
        tell(output, args)

    with ExitStack() as hooks:
        for block in loaded.block_modules:
            hooks.enter_context(block.register_forward_pre_hook(before))
            hooks.enter_context(block.register_forward_hook(after))
        yield


def shapes_of(loaded: PretrainedModel, inputs_BCHW: np.ndarray) -> list[Shape]:
    """Of the map of every layer, the first block's input included."""
    shapes: list[Shape] = []
    with listening(loaded, lambda n, x_BHWD: shapes.append(tuple(x_BHWD.shape[1:]))):
        forward(loaded, inputs_BCHW)
    if len(shapes) != loaded.blocks + 1:
        raise UserError(
            f"{type(loaded.model).__name__}: {len(shapes)} layers were seen, of {loaded.blocks} blocks and their "
            "input; its entry in sources/hf/adapters.py does not fit"
        )
    return shapes


def same_as_own(loaded: PretrainedModel, inputs_CHW: np.ndarray) -> str:
    """Every map that the model gives itself must be the output of a block, in order; the last one
    of the last block.
    """
    given, furthest = from_own(loaded, inputs_CHW[None])
    if furthest > CLOSE:
        raise UserError(
            f"{type(loaded.model).__name__}: the model's own maps are not those of its blocks (they differ by "
            f"{furthest:.2g} of their largest number); the entry in sources/hf/adapters.py does not fit"
        )
    words = (
        f"before the norm of the stage ({loaded.adapter.final_norm})"
        if loaded.adapter.final_norm
        else "no norm"
    )
    return f"output of every block, {words}; the {given} maps that the model gives are those to {furthest:.0e}"


def from_own(loaded: PretrainedModel, inputs_BCHW: np.ndarray) -> tuple[int, float]:
    """How many maps the model gives itself, and how far the furthest is from every block's, of its
    largest number.

    Infinitely far where the last map is not of the last block.
    """
    caught: list[Any] = []
    with listening(loaded, lambda n, x_BHWD: caught.append(x_BHWD.clone())):
        own = forward(loaded, inputs_BCHW, output_hidden_states=True).hidden_states
    furthest, place = 0.0, -1
    for stage, map_BDHW in enumerate(own):
        theirs_BHWD = map_BDHW.permute(0, 2, 3, 1).float()
        path = loaded.adapter.final_norm
        norm = loaded.base.get_submodule(path.format(stage)) if path else torch.nn.Identity()
        far = {
            n: float((norm(x_BHWD).float() - theirs_BHWD).abs().max() / theirs_BHWD.abs().max())
            for n, x_BHWD in enumerate(caught)
            if n > place and x_BHWD.shape == theirs_BHWD.shape
        }
        place = min(far, key=far.get, default=-1)
        furthest = max(furthest, far.get(place, np.inf))
    return len(own), furthest if place == loaded.blocks else np.inf


def picked(picks_P: np.ndarray, sizes: list[Size], seed: int) -> Picked:
    """`picks_P` are cells of the coarsest map of every window, which a cell of each finer one is
    drawn below.
    """
    coarse = min(sizes, key=np.prod)
    window_P, cell_P = np.divmod(picks_P, coarse[0] * coarse[1])
    cells_P = np.divmod(cell_P, coarse[1])
    rng, by_size = np.random.default_rng(seed), {}
    for size in dict.fromkeys(sizes):
        places = []
        for cell, few, many in zip(cells_P, coarse, size, strict=True):
            low, high = cell * many // few, (cell + 1) * many // few
            places.append(low + (rng.random(len(cell)) * (high - low)).astype(int))
        by_size[size] = tuple(places)
    return Picked(window_P, by_size)


def clouds(
    loaded: PretrainedModel, inputs_ZW: np.ndarray, at: Picked, batch_size: int
) -> list[np.ndarray]:
    """The points of every layer, (Z, P, D) each, in float32; UserError where one is not finite."""
    inputs, windows = inputs_ZW.shape[:2]
    clouds_N: list[np.ndarray | None] = [None] * (loaded.blocks + 1)
    for z, start in np.ndindex(inputs, -(-windows // batch_size)):
        first = start * batch_size
        here_P = np.flatnonzero((at.window_P >= first) & (at.window_P < first + batch_size))

        def on_map(
            n: int, x_BHWD: Any, z: int = z, first: int = first, here_P: np.ndarray = here_P
        ) -> None:
            rows_P, columns_P = (
                places_P[here_P] for places_P in at.cell_P[tuple(x_BHWD.shape[1:3])]
            )
            index = tuple(
                torch.as_tensor(i).to(x_BHWD.device)
                for i in (at.window_P[here_P] - first, rows_P, columns_P)
            )
            points_PD = x_BHWD.detach()[index].to("cpu", torch.float32).numpy()
            if not np.isfinite(points_PD).all():
                raise UserError(f"the map of layer {n} holds numbers that are not finite")
            if clouds_N[n] is None:
                clouds_N[n] = np.empty((inputs, len(at.window_P), points_PD.shape[1]), np.float32)
            clouds_N[n][z, here_P] = points_PD

        with listening(loaded, on_map):
            forward(loaded, inputs_ZW[z, first : first + batch_size])
    return clouds_N


def padded(clouds_N: list[np.ndarray]) -> np.ndarray:
    """(Z, N, P, D) with zeros up to the largest width, which neither products nor distances see."""
    widest = max(cloud.shape[2] for cloud in clouds_N)
    return np.stack(
        [np.pad(cloud, ((0, 0), (0, 0), (0, widest - cloud.shape[2]))) for cloud in clouds_N],
        axis=1,
    )


def measure_batch(
    batch: int,
    clouds_N: list[np.ndarray],
    others: dict[str, np.ndarray],
    at: Picked,
    settings: MeasureConfig,
) -> dict[str, Values]:
    """The panel of one batch, {sample: {quantity: (1, 1, layer, …, R)}}: layers of one width in one
    program.
    """
    names, key = inputs_of(settings), keys(settings.seed, settings.batches)[batch]
    of = {
        kind: tuple(name for name in settings.families if FAMILIES[name].of == kind) for kind in OF
    }
    # no place is the first
    places = Places(at.window_P.astype(np.int32), np.full(len(at.window_P), -1, np.int32))
    values: dict[str, Values] = {}

    def measured(names: tuple[str, ...], kind: str, width: int, *given: Any) -> Any:
        only = dataclasses.replace(settings, families=of[kind], seed=0)  # keys are arguments
        compute = _computation(names, only, bytes_of_cloud(settings.points, width, of[kind]))
        return jax.device_get(compute(places, *given))

    if of["cloud"]:
        parts: list[Any] = [None] * len(clouds_N)
        for width in dict.fromkeys(cloud.shape[2] for cloud in clouds_N):
            numbers = [n for n, cloud in enumerate(clouds_N) if cloud.shape[2] == width]
            clouds_ZNPD = np.stack([clouds_N[n] for n in numbers], axis=1)
            key_N = layer_keys(key, np.array(numbers))
            of_width = measured(names, "cloud", width, clouds_ZNPD, {}, key_N)
            for place, n in enumerate(numbers):
                parts[n] = jax.tree.map(lambda x, place=place: x[place], of_width)
        values = jax.tree.map(lambda *layers: np.stack(layers), *parts)
    if of["layers"]:
        others = {name: np.asarray(x) for name, x in others.items()}
        of_layers = measured((MEASURED,), "layers", 1, padded(clouds_N)[:1], others, key)
        values.setdefault(MEASURED, {}).update(of_layers[MEASURED])
    return jax.tree.map(lambda x: np.asarray(x)[None, None], values)


@functools.cache
def _computation(names: tuple[str, ...], settings: MeasureConfig, bytes_of_one: int) -> Any:
    over = mesh.over_clouds(MeshConfig(), bytes_of_one)

    def measure(
        places: Places, clouds_ZNPD: Any, others: dict[str, Any], key: Any
    ) -> dict[str, Values]:
        samples = {name: Sample(clouds_ZNPD[z], places=places) for z, name in enumerate(names)}
        return panel(samples, others, settings, key, over)

    return jax.jit(measure)


def of_revision(
    plan: Plan, loaded: PretrainedModel, step: int, last: bool, beside: Residuals
) -> tuple[Measured, dict[str, float]]:
    """Everything that is measured of one revision, batch by batch."""

    def read(g: int, size: int, again: bool) -> list[np.ndarray]:
        clouds_N = clouds(loaded, plan.inputs(g, again), picked_of(plan, g), size)
        if not again:
            beside.keep(step, g, padded(clouds_N)[0])
        return clouds_N

    def compute(g: int, clouds_N: list[np.ndarray], again: bool) -> Measured:
        settings = plan.settings(again)
        return Measured(
            measure_batch(g, clouds_N, beside.beside(step, g), picked_of(plan, g), settings), {}
        )

    return measure_batches(plan, last, read, compute)


def residuals(plan: Plan, loaded: PretrainedModel) -> list[np.ndarray]:
    """Of each batch the clouds alone, as other revisions are compared with them."""
    size, inputs_GW = plan.config.pretrained.batch_size, plan.windows.probe.tokens_GWT
    return [
        padded(clouds(loaded, inputs_W[None], picked_of(plan, g), size))[0]
        for g, inputs_W in enumerate(inputs_GW)
    ]


def picked_of(plan: Plan, g: int) -> Picked:
    return picked(plan.windows.probe.picks_SGP[0, g], plan.windows.sizes, plan.config.measure.seed)
