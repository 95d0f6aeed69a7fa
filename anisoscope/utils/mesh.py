"""Lay out batch, parameters and seeds on devices, and share measuring among them.

In training a CPU is one device, since XLA uses all its cores for products and element-wise work.
Measuring consists of sorting and selection, for which XLA uses a single core; it therefore treats
every core as a device.
"""

import concurrent.futures
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.utils.errors import UserError

MESH_AXES = ("data", "fsdp")
UNITS = ("batches", "positions")  # mesh axes of measuring
# without it XLA aborts when a core is a minute late
PATIENT = "--xla_cpu_collective_call_terminate_timeout_seconds=86400"
_cores = False  # whether the devices are the cores of a CPU


def take_cores_for_devices(most: int) -> None:
    """Expose up to `most` CPU cores as JAX devices.

    Call it before JAX initializes; a device count in XLA_FLAGS wins.
    """
    global _cores
    flags = os.environ.get("XLA_FLAGS", "")
    if _cores or "xla_force_host_platform_device_count" in flags:
        return
    os.environ["XLA_FLAGS"] = f"{PATIENT} {flags}"  # the user's flags come last and win
    jax.config.update("jax_num_cpu_devices", min(cores(), most))
    _cores = jax.default_backend() == "cpu"


def devices() -> list[jax.Device]:
    """List the devices for training; on a CPU only the first, which uses all cores."""
    return jax.devices()[: 1 if _cores else None]


def process_devices(devices: list[jax.Device]) -> list[jax.Device]:
    """Select the devices that belong to this process."""
    return [device for device in devices if device.process_index == jax.process_index()]


def make_mesh(data: int, fsdp: int) -> jax.sharding.Mesh:
    """Make the mesh of all devices; data = -1 stands for what fsdp leaves."""
    mesh_devices = devices()
    parts = len(mesh_devices) // fsdp if data == -1 else data
    if parts * fsdp != len(mesh_devices):
        words = f"does not use all of {len(mesh_devices)} devices"
        raise UserError(f"mesh.data={data} × mesh.fsdp={fsdp} {words}")
    return jax.make_mesh(
        (parts, fsdp), MESH_AXES, axis_types=(AxisType.Auto,) * 2, devices=mesh_devices
    )


def check_clouds(clouds: int | None) -> None:
    """Raise UserError if so many clouds cannot be measured at a time."""
    if (clouds or 1) > 1 and jax.default_backend() == "cpu":
        why = "a CPU measures clouds one by one: omit the setting"
        raise UserError(f"mesh.clouds is {clouds}; {why}")


def first_device_mesh() -> jax.sharding.Mesh:
    """Make the mesh of this process's first device alone."""
    axis_types, devices = (AxisType.Auto,) * 2, jax.local_devices()[:1]
    return jax.make_mesh((1, 1), MESH_AXES, axis_types=axis_types, devices=devices)


def measuring_mesh(batches: int, sets: int) -> jax.sharding.Mesh | None:
    """Make a mesh over which batches and sets of positions divide evenly.

    On a CPU it uses as many cores as divide evenly; on an accelerator all devices, else it is None.
    """
    candidates = jax.devices() if _cores else devices()
    parts = itertools.product(range(1, batches + 1), range(1, sets + 1))
    shapes = [(b, s) for b, s in parts if batches % b == 0 == sets % s and b * s <= len(candidates)]
    shape = max(shapes, key=lambda s: (math.prod(s), s))
    if math.prod(shape) < len(candidates) and not _cores:
        return None
    return jax.make_mesh(
        shape, UNITS, axis_types=(AxisType.Auto,) * 2, devices=candidates[: math.prod(shape)]
    )


def parameter_sharding(mesh: jax.sharding.Mesh, tree: Any) -> Any:
    """Split every matrix over fsdp along its largest divisible axis; replicate other leaves."""
    parts = mesh.shape["fsdp"]

    def place(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [i for i, size in enumerate(leaf.shape) if size % parts == 0]
        if parts == 1 or len(leaf.shape) < 2 or not axes:
            return NamedSharding(mesh, P())
        spec = [None] * len(leaf.shape)
        spec[max(axes, key=lambda i: leaf.shape[i])] = "fsdp"
        return NamedSharding(mesh, P(*spec))

    return jax.tree.map(place, tree)


def map_over_devices(work: Callable[[int, Any], Any], inputs: Any, count: int) -> list[Any]:
    """Compute work(number, inputs) for every number below `count`, as NumPy arrays.

    As many calls run in parallel as there are devices, each with a copy of `inputs`, or CPU cores.
    """
    places = process_devices(devices())[:count]
    if jax.default_backend() == "cpu":
        places = places[:1] * min(cores(), count)
    copies = {place: jax.device_put(inputs, place) for place in places}

    def run(number: int) -> Any:
        return jax.device_get(work(number, copies[places[number % len(places)]]))

    with concurrent.futures.ThreadPoolExecutor(len(places)) as threads:
        return list(threads.map(run, range(count)))


def cores() -> int:
    """Count the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_units(mesh: jax.sharding.Mesh) -> Callable[[Callable], Callable]:
    """Make a function that shards work over the mesh's batches and sets of positions.

    The work is work(params, references, batches, units, visible). The batch is the first axis of all
    but params and references. The set of positions is the second axis of units and results, and the
    first of `visible`.
    """
    batch, unit, positions = P(UNITS[0]), P(*UNITS), P(UNITS[1])
    specs = {"in_specs": (P(), P(), batch, unit, positions), "out_specs": unit}
    return lambda work: jax.shard_map(work, mesh=mesh, **specs, check_vma=False)


def over_windows(
    mesh: jax.sharding.Mesh, apply: Callable[[Any, Any], tuple]
) -> Callable[[Any, Any], tuple]:
    """Make apply(inputs, tokens_BT) -> (None, activations) for use inside `over_units`.

    Devices that share the sets of positions read the same windows. Each applies the model to its
    part of the windows, and all gather all activations, whose second axis is the window. If the
    windows do not divide evenly, each device applies the model to all.
    """
    parts, axis = mesh.shape[UNITS[1]], UNITS[1]

    def shared(inputs: Any, tokens_BT: Any) -> tuple:
        if parts == 1 or len(tokens_BT) % parts:
            return None, apply(inputs, tokens_BT)[1]
        size = len(tokens_BT) // parts
        first = jax.lax.axis_index(axis) * size
        _, activations = apply(inputs, jax.lax.dynamic_slice_in_dim(tokens_BT, first, size))
        if any(x.shape[1] != size for x in jax.tree.leaves(activations)):
            raise ValueError("activations must have windows as their second axis")
        return None, jax.tree.map(
            lambda x: jax.lax.all_gather(x, axis, axis=1, tiled=True), activations
        )

    return shared


def over_clouds(most: int | None, cloud_bytes: int) -> Callable[[Callable, Any], Any]:
    """Make map_clouds(work, stacked), which maps up to `most` clouds at a time.

    None means 1 on a CPU, where larger values have hung, else as many as fit in memory.
    """
    if most is None:
        on_cpu = jax.default_backend() == "cpu"
        stats = {} if on_cpu else jax.local_devices()[0].memory_stats() or {}
        most = (stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)) // (4 * cloud_bytes)

    def over(work: Callable, stacked: Any) -> Any:
        count = len(jax.tree.leaves(stacked)[0])
        sizes = (size for size in range(1, count + 1) if count % size == 0)
        at_once = max(size for size in sizes if size <= max(most, 1))
        return jax.lax.map(work, stacked, batch_size=None if at_once == 1 else at_once)

    return over


def map_over_seeds(work: Callable, seeds: int | None, count: int) -> Callable:
    """Map `work` over `count` arguments stacked on a first axis, `seeds` at a time, in one program.

    On a CPU, a seed mapped alone has bitwise the results of its own program. With vmap the sums in
    LayerNorm, softmax and bias gradients are taken in another order (1e-7 relative from the first
    block on). On a CPU vmap saves no time, since a single seed keeps the cores busy, and needs the
    memory of all seeds at once. A single small seed leaves an accelerator idle.
    """
    at_once = seeds or (1 if jax.default_backend() == "cpu" else count)
    batch_size = None if at_once == 1 or count == 1 else min(at_once, count)
    return lambda *stacked: jax.lax.map(lambda x: work(*x), stacked, batch_size=batch_size)
