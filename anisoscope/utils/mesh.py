"""Lay out batch, parameters and seeds on devices, and share measuring among them."""

import concurrent.futures
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.utils.errors import UserError

MESH_AXES = ("data", "fsdp")


def devices() -> list[jax.Device]:
    """List the devices that train and measure."""
    return jax.devices()


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


def first_device_mesh() -> jax.sharding.Mesh:
    """Make the mesh of this process's first device alone."""
    axis_types, devices = (AxisType.Auto,) * 2, jax.local_devices()[:1]
    return jax.make_mesh((1, 1), MESH_AXES, axis_types=axis_types, devices=devices)


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


def map_over_devices(work: Callable[[int], Any], count: int, threads: int = 1) -> list[Any]:
    """Compute work(number) for every number below `count`, on the devices in turn.

    On a CPU the cores share the work, each of which takes as many `threads`: XLA sorts and selects
    on a single core. Work inside of other work stays on the device of that.
    """
    chosen, own = jax.config.jax_default_device, jax.process_index()
    places = [device for device in devices() if device.process_index == own][:count]
    if jax.default_backend() == "cpu":
        places = [chosen] * min(max(cores() // threads, 1), count)
    elif chosen is not None:
        places = [chosen]

    def run(number: int) -> Any:
        with jax.default_device(places[number % len(places)]):
            return work(number)

    if len(places) == 1:
        return [run(number) for number in range(count)]
    with concurrent.futures.ThreadPoolExecutor(len(places)) as pool:
        return list(pool.map(run, range(count)))


def cores() -> int:
    """Count the CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
