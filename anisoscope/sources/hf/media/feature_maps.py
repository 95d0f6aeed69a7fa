"""Measure models whose blocks return maps of varying size and width: one cloud per block.

All clouds have the same number of points. A point is a cell of the coarsest map, drawn at random.
In a finer map it is one of the cells below that cell, drawn at random too, and the same cell in all
maps of one size. Clouds of two layers therefore cover the same places, and can be compared. Arrays
carry the letters of `models`, and Z inputs, W windows, G batches, S sets of positions.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import layer_keys
from anisoscope.measurement.panel import MEASURED, Sample, estimate_cloud_bytes, panel
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places
from anisoscope.sources.activations import Measured, batch_keys, input_names
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import forward
from anisoscope.sources.hf.reading_plan import Plan, measure_batches
from anisoscope.sources.hf.residuals import Residuals
from anisoscope.utils import mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.layout import MeshConfig

KINDS = ("cloud", "layers")  # of families; heads and masks change between stages too
CLOSE = 1e-3  # relative to the largest number of a map
Size = tuple[int, int]  # height and width
Shape = tuple[int, int, int]  # and number of channels


class MapPoints(NamedTuple):
    """Where the points lie: the window, and the cell (row, column) in maps of each size."""

    window_P: np.ndarray
    cell_P: dict[Size, tuple[np.ndarray, np.ndarray]]


@contextmanager
def watch_maps(loaded: PretrainedModel, on_map: Callable[[int, Any], None]) -> Iterator[None]:
    """Call on_map(n, x_BHWD) with the input of the first block and the output of every block.

    Blocks return maps (B, D, H, W), or rows of maps (B, HW, D) with the size as further inputs. A
    leading class token is dropped.
    """
    numbers = itertools.count()

    def watch(x: Any, inputs: tuple) -> None:
        if x.ndim == 4:
            x_BHWD = x.permute(0, 2, 3, 1)
        else:
            height, width = inputs[1:3]
            x_BHWD = x[:, -height * width :].unflatten(1, (height, width))
        on_map(next(numbers), x_BHWD)

    first = loaded.block_modules[0]
    with ExitStack() as hooks:
        hook = first.register_forward_pre_hook(lambda _, inputs: watch(inputs[0], inputs))
        hooks.enter_context(hook)
        for block in loaded.block_modules:
            hook = block.register_forward_hook(lambda _, inputs, output: watch(output, inputs))
            hooks.enter_context(hook)
        yield


def map_shapes(loaded: PretrainedModel, inputs_BCHW: np.ndarray) -> list[Shape]:
    """Return the shape of every layer's map, beginning with the first block's input."""
    shapes: list[Shape] = []
    with watch_maps(loaded, lambda n, x_BHWD: shapes.append(tuple(x_BHWD.shape[1:]))):
        forward(loaded, inputs_BCHW)
    if len(shapes) != loaded.blocks + 1:
        raise UserError(
            f"{type(loaded.model).__name__}: {len(shapes)} layers ran, {loaded.blocks + 1} were "
            "expected (the input and every block); correct its entry in sources/hf/adapters.py"
        )
    return shapes


def check_maps(loaded: PretrainedModel, inputs_CHW: np.ndarray) -> str:
    """Check every map that the model reports against the outputs of the blocks."""
    count, furthest = compare_maps(loaded, inputs_CHW[None])
    if furthest > CLOSE:
        raise UserError(
            f"{type(loaded.model).__name__}: the reported maps differ from the outputs of its "
            f"blocks by {furthest:.2g} of their largest number; correct its entry in "
            "sources/hf/adapters.py"
        )
    norm = loaded.adapter.final_norm
    words = f"before the norm of the stage ({norm})" if norm else "no norm"
    return (
        f"output of every block, {words}; the {count} maps that the model gives are those to "
        f"{furthest:.0e}"
    )


def compare_maps(loaded: PretrainedModel, inputs_BCHW: np.ndarray) -> tuple[int, float]:
    """Compare the reported maps with the nearest maps of the blocks, in order.

    Returns:
        The number of reported maps, and the largest distance to the nearest map of a block, as a share
        of the largest number of the map. It is infinite unless the last reported map matches the last
        block.
    """
    maps: list[Any] = []
    with watch_maps(loaded, lambda n, x_BHWD: maps.append(x_BHWD.clone())):
        reported = forward(loaded, inputs_BCHW, output_hidden_states=True).hidden_states
    furthest, place, path = 0.0, -1, loaded.adapter.final_norm
    for stage, map_BDHW in enumerate(reported):
        own_BHWD = map_BDHW.permute(0, 2, 3, 1).float()
        norm = loaded.base.get_submodule(path.format(stage)) if path else torch.nn.Identity()
        distance = {
            n: float((norm(x_BHWD).float() - own_BHWD).abs().max() / own_BHWD.abs().max())
            for n, x_BHWD in enumerate(maps)
            if n > place and x_BHWD.shape == own_BHWD.shape
        }
        place = min(distance, key=distance.get, default=-1)
        furthest = max(furthest, distance.get(place, np.inf))
    return len(reported), furthest if place == loaded.blocks else np.inf


def pick_points(picks_P: np.ndarray, sizes: list[Size], seed: int) -> MapPoints:
    """Draw a cell of each finer map below `picks_P`, cells of the coarsest map of every window."""
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
    return MapPoints(window_P, by_size)


def read_clouds(
    loaded: PretrainedModel, inputs_ZW: np.ndarray, points: MapPoints, batch_size: int
) -> list[np.ndarray]:
    """Read the points of every layer, (Z, P, D) each, in float32.

    Raises:
        UserError: a number is not finite.
    """
    clouds_ZN = []
    for inputs_W in inputs_ZW:
        rows, passes = [], []
        for start in range(0, len(inputs_W), batch_size):
            part_W = inputs_W[start : start + batch_size]
            part_P = points.window_P - start
            rows.append(np.flatnonzero((part_P >= 0) & (part_P < len(part_W))))
            passes.append(_read_pass(loaded, part_W, points, start, rows[-1]))
        order_P = np.concatenate(rows).argsort()
        layers = zip(*passes, strict=True)
        clouds_ZN.append([np.concatenate(parts)[order_P] for parts in layers])
    clouds_N = [np.stack(clouds_Z) for clouds_Z in zip(*clouds_ZN, strict=True)]
    for n, cloud_ZPD in enumerate(clouds_N):
        if not np.isfinite(cloud_ZPD).all():
            raise UserError(
                f"the map of layer {n} holds numbers that are not finite; try pretrained.dtype=float32"
            )
    return clouds_N


def _read_pass(
    loaded: PretrainedModel, inputs_W: np.ndarray, points: MapPoints, start: int, rows: np.ndarray
) -> list[np.ndarray]:
    """Read the points `rows` of every layer, which lie in windows from `start` on."""
    clouds = []

    def on_map(n: int, x_BHWD: Any) -> None:
        cells = points.cell_P[tuple(x_BHWD.shape[1:3])]
        places = points.window_P[rows] - start, cells[0][rows], cells[1][rows]
        index = tuple(torch.as_tensor(place).to(x_BHWD.device) for place in places)
        clouds.append(x_BHWD.detach()[index].to("cpu", torch.float32).numpy())

    with watch_maps(loaded, on_map):
        forward(loaded, inputs_W)
    return clouds


def pad_widths(clouds_N: list[np.ndarray]) -> np.ndarray:
    """Stack clouds to (Z, N, P, D); zeros up to the largest width change no product or distance."""
    widest = max(cloud.shape[2] for cloud in clouds_N)
    widths = [((0, 0), (0, 0), (0, widest - cloud.shape[2])) for cloud in clouds_N]
    return np.stack([np.pad(x, width) for x, width in zip(clouds_N, widths, strict=True)], axis=1)


def measure_clouds(
    batch: int,
    clouds_N: list[np.ndarray],
    others: dict[str, np.ndarray],
    points: MapPoints,
    settings: MeasureConfig,
) -> dict[str, Values]:
    """Run the panel on one batch, {sample: {quantity: (1, 1, layer, …, R)}}.

    Layers of one width share one program.
    """
    key, values = batch_keys(settings.seed, settings.batches)[batch], {}
    no_place_P = np.full(len(points.window_P), -1, np.int32)  # no point is the first of its window
    places = Places(points.window_P.astype(np.int32), no_place_P)
    cloud_settings, layer_settings = (
        dataclasses.replace(  # keys are arguments of the program
            settings,
            families=tuple(name for name in settings.families if FAMILIES[name].input_kind == kind),
            seed=0,
        )
        for kind in KINDS
    )
    if cloud_settings.families:
        parts: list[Any] = [None] * len(clouds_N)
        for width in dict.fromkeys(cloud.shape[2] for cloud in clouds_N):
            numbers = [n for n, cloud in enumerate(clouds_N) if cloud.shape[2] == width]
            clouds_ZNPD = np.stack([clouds_N[n] for n in numbers], axis=1)
            key_N = layer_keys(key, np.array(numbers))
            compute = _make_panel(input_names(settings), cloud_settings, width)
            found = jax.device_get(compute(places, clouds_ZNPD, {}, key_N))
            for place, n in enumerate(numbers):
                parts[n] = jax.tree.map(lambda x, place=place: x[place], found)
        values = jax.tree.map(lambda *layers: np.stack(layers), *parts)
    if layer_settings.families:
        others = {name: np.asarray(x) for name, x in others.items()}
        compute = _make_panel((MEASURED,), layer_settings, 1)
        found = jax.device_get(compute(places, pad_widths(clouds_N)[:1], others, key))
        values.setdefault(MEASURED, {}).update(found[MEASURED])
    return jax.tree.map(lambda x: np.asarray(x)[None, None], values)


@functools.cache
def _make_panel(names: tuple[str, ...], settings: MeasureConfig, width: int) -> Any:
    """Compile the panel of clouds (Z, N, P, width), of inputs with these names."""
    size = estimate_cloud_bytes(settings.points, width, settings.families)
    over = mesh.over_clouds(MeshConfig(), size)

    def measure(
        places: Places, clouds_ZNPD: Any, others: dict[str, Any], key: Any
    ) -> dict[str, Values]:
        samples = {name: Sample(clouds_ZNPD[z], places=places) for z, name in enumerate(names)}
        return panel(samples, others, settings, key, over)

    return jax.jit(measure)


def measure_maps(
    plan: Plan, loaded: PretrainedModel, step: int, last: bool, residuals: Residuals
) -> tuple[Measured, dict[str, float]]:
    """Measure all quantities of one revision, batch by batch."""

    def measure(g: int, size: int, again: bool) -> Measured:
        points, settings = _batch_points(plan, g), plan.settings(again)
        clouds_N = read_clouds(loaded, plan.inputs(g, again), points, size)
        if not again:
            residuals.keep(step, g, pad_widths(clouds_N)[0])
        others = residuals.compared(step, g)
        return Measured(measure_clouds(g, clouds_N, others, points, settings), {})

    return measure_batches(plan, last, measure)


def read_map_residuals(plan: Plan, loaded: PretrainedModel) -> list[np.ndarray]:
    """Read the clouds of each batch, for comparisons with other revisions."""
    size, inputs_GW = plan.config.pretrained.batch_size, plan.windows.probe.tokens_GWT
    return [
        pad_widths(read_clouds(loaded, inputs_W[None], _batch_points(plan, g), size))[0]
        for g, inputs_W in enumerate(inputs_GW)
    ]


def _batch_points(plan: Plan, g: int) -> MapPoints:
    picks_P = plan.windows.probe.picks_SGP[0, g]
    return pick_points(picks_P, plan.windows.sizes, plan.config.measure.seed)
