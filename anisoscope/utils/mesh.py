"""How batch, parameters and seeds lie on the devices, and how measuring is shared out to them.

A CPU is one device, whose cores XLA keeps busy in products and element-wise work; in sorting and
selecting, of which measuring consists, it uses one of them. So measuring takes every core for a
device of its own, and training does not.
"""

import concurrent.futures
import math
import os
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.layout import MeshConfig

AXES = ("data", "fsdp")
UNITS = ("batches", "positions")  # of measuring
# else XLA aborts where a core is a minute late
PATIENT = "--xla_cpu_collective_call_terminate_timeout_seconds=86400"
_cores = False  # whether the devices are the cores of one CPU


def take_cores_for_devices(most: int) -> None:
    """Expose up to `most` CPU cores as JAX devices.

    Call it before JAX initializes; a device count in XLA_FLAGS wins.
    """
    global _cores
    flags = os.environ.get("XLA_FLAGS", "")
    if _cores or "xla_force_host_platform_device_count" in flags:
        return
    os.environ["XLA_FLAGS"] = f"{PATIENT} {flags}"  # of the same flag twice XLA takes the last
    jax.config.update("jax_num_cpu_devices", min(cores(), most))
    _cores = jax.default_backend() == "cpu"


def devices() -> list[jax.Device]:
    """List the devices of training: of the cores of a CPU the first, which uses the others."""
    return jax.devices()[: 1 if _cores else None]


def own(devices: list[jax.Device]) -> list[jax.Device]:
    """Select the devices of this process."""
    return [device for device in devices if device.process_index == jax.process_index()]


def measures_apart(config: MeshConfig) -> bool:
    """Whether every process can measure for itself, as its own devices hold all parameters."""
    return jax.process_count() > 1 and not any(
        processes.largest(jax.local_device_count() % config.fsdp)
    )


def make_mesh(config: MeshConfig, apart: bool = False) -> jax.sharding.Mesh:
    """Make the mesh of all devices, or of its own where a process works `apart`."""
    if (config.clouds or 1) > 1 and jax.default_backend() == "cpu":
        raise UserError(
            f"mesh.clouds is {config.clouds}; on a CPU clouds are measured one after another: leave it out"
        )
    mesh_devices = own(devices()) if apart else devices()
    data = len(mesh_devices) // config.fsdp if config.data == -1 or apart else config.data
    if data * config.fsdp != len(mesh_devices):
        words = f"does not use all of {len(mesh_devices)} devices"
        raise UserError(f"mesh.data={config.data} × mesh.fsdp={config.fsdp} {words}")
    return jax.make_mesh(
        (data, config.fsdp), AXES, axis_types=(AxisType.Auto,) * 2, devices=mesh_devices
    )


def measuring_mesh(batches: int, sets: int, apart: bool = False) -> jax.sharding.Mesh | None:
    """Make a mesh over which batches and sets of positions divide evenly.

    As many cores of a CPU as can take part; of other devices all, or None.
    """
    candidates = jax.devices() if _cores else devices()
    candidates = own(candidates) if apart else candidates
    shapes = [
        (b, s)
        for b in range(1, batches + 1)
        for s in range(1, sets + 1)
        if batches % b == 0 == sets % s
    ]
    shape = max(
        (shape for shape in shapes if math.prod(shape) <= len(candidates)),
        key=lambda s: (math.prod(s), s),
    )
    if math.prod(shape) < len(candidates) and not _cores:
        return None
    return jax.make_mesh(
        shape, UNITS, axis_types=(AxisType.Auto,) * 2, devices=candidates[: math.prod(shape)]
    )


def parameter_sharding(mesh: jax.sharding.Mesh, tree: Any) -> Any:
    """Split every matrix over fsdp along its largest divisible dimension; replicate the rest."""
    parts = mesh.shape["fsdp"]

    def place(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [i for i, size in enumerate(leaf.shape) if size % parts == 0]
        if parts == 1 or len(leaf.shape) < 2 or not axes:
            return NamedSharding(mesh, P())
        widest = max(axes, key=lambda i: leaf.shape[i])
        return NamedSharding(
            mesh, P(*(("fsdp" if i == widest else None) for i in range(len(leaf.shape))))
        )

    return jax.tree.map(place, tree)


def share_out(work: Callable[[int, Any], Any], given: Any, count: int) -> list[Any]:
    """Compute work(number, given) for every number below `count`, in NumPy.

    As many go at once as there are devices, each with a copy of `given`, or cores of a CPU.
    """
    places = own(devices())[:count]
    if jax.default_backend() == "cpu":
        places = places[:1] * min(cores(), count)
    copies = {place: jax.device_put(given, place) for place in places}
    with concurrent.futures.ThreadPoolExecutor(len(places)) as threads:
        return list(
            threads.map(
                lambda n: jax.device_get(work(n, copies[places[n % len(places)]])), range(count)
            )
        )


def cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def over_units(mesh: jax.sharding.Mesh) -> Callable[[Callable], Callable]:
    """work(params, references, batches, units, visible) -> (values, vectors), shared out to the
    devices.

    The first axis of all but params and references is the batch, the next one of units and values
    the set of positions; the first of `visible` is that set.
    """
    batch, unit, positions = P(UNITS[0]), P(*UNITS), P(UNITS[1])
    specs = {"in_specs": (P(), P(), batch, unit, positions), "out_specs": (unit, batch)}
    return lambda work: jax.shard_map(work, mesh=mesh, **specs, check_vma=False)


def over_windows(
    mesh: jax.sharding.Mesh, apply: Callable[[Any, Any], tuple]
) -> Callable[[Any, Any], tuple]:
    """apply(given, tokens_BT) -> (logits, activations) inside of `over_units`, as (None,
    activations).

    Devices that share out the sets of positions read the same windows: each applies the model to
    its part of them, and all get all. The windows are the second axis of every array of
    activations. Where they do not divide, each does all.
    """
    parts, axis = mesh.shape[UNITS[1]], UNITS[1]

    def shared(given: Any, tokens_BT: Any) -> tuple:
        if parts == 1 or len(tokens_BT) % parts:
            return None, apply(given, tokens_BT)[1]
        own = len(tokens_BT) // parts
        first = jax.lax.axis_index(axis) * own
        _, activations = apply(given, jax.lax.dynamic_slice_in_dim(tokens_BT, first, own))
        if any(x.shape[1] != own for x in jax.tree.leaves(activations)):
            raise ValueError("the second axis of some activations is not that of windows")
        return None, jax.tree.map(
            lambda x: jax.lax.all_gather(x, axis, axis=1, tiled=True), activations
        )

    return shared


def over_clouds(config: MeshConfig, bytes_of_one: int) -> Callable[[Callable, Any], Any]:
    """Make over(work, stacked), which maps `mesh.clouds` at a time.

    Left out, that is 1 on a CPU (more were seen to hang), else what fits.
    """
    if (most := config.clouds) is None:
        stats = (
            {} if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats() or {}
        )
        most = (stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0)) // (4 * bytes_of_one)

    def over(work: Callable, stacked: Any) -> Any:
        count = len(jax.tree.leaves(stacked)[0])
        at_once = max(
            size for size in range(1, count + 1) if count % size == 0 and size <= max(most, 1)
        )
        return jax.lax.map(work, stacked, batch_size=None if at_once == 1 else at_once)

    return over


def over_seeds(work: Callable, config: MeshConfig, count: int) -> Callable:
    """Map `work` over arguments stacked on a first axis, `mesh.seeds` at a time, in one program.

    On a CPU, a seed that goes alone has bitwise the numbers of a program of its own. Vmapped ones
    do not: products come out the same, but the sums in LayerNorm, softmax and bias gradients are
    taken in another order (1e-7 relative, from the first block on). Nor do they gain there, and
    need the memory of all at once, since one seed keeps the cores busy; an accelerator is left idle
    by a small one.
    """
    at_once = config.seeds or (1 if jax.default_backend() == "cpu" else count)
    batch_size = None if at_once == 1 or count == 1 else min(at_once, count)
    return lambda *stacked: jax.lax.map(lambda one: work(*one), stacked, batch_size=batch_size)
