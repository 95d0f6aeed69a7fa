"""How batch, parameters and members lie on the devices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from workdir.errors import UserError
from workdir.settings import at_least

AXES = ("data", "fsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    data: int = -1  # devices that split the batch; -1: all that fsdp leaves
    fsdp: int = 1  # devices that split parameters and batch
    members: int | None = None  # seeds worked on at a time (vmapped); left out: 1 on a CPU, all on an accelerator


def check(mesh: MeshConfig) -> None:
    """Raise UserError, one line, where a setting cannot be, whatever the devices."""
    at_least("mesh.fsdp", mesh.fsdp, 1)
    at_least("mesh.members", mesh.members, 1)
    if mesh.data != -1 and mesh.data < 1:
        raise UserError(f"mesh.data is {mesh.data}; it must be at least 1, or -1 for all devices")


def make_mesh(config: MeshConfig) -> jax.sharding.Mesh:
    devices = jax.device_count()
    data = devices // config.fsdp if config.data == -1 else config.data
    if data * config.fsdp != devices:
        raise UserError(f"mesh.data={config.data} × mesh.fsdp={config.fsdp} does not use all of {devices} devices")
    return jax.make_mesh((data, config.fsdp), AXES, axis_types=(AxisType.Auto,) * 2)


def parameter_sharding(mesh: jax.sharding.Mesh, tree: Any) -> Any:
    """Every matrix is split over the fsdp axis along its largest divisible dimension; the rest is replicated."""
    parts = mesh.shape["fsdp"]

    def place(leaf: jax.ShapeDtypeStruct) -> NamedSharding:
        axes = [i for i, size in enumerate(leaf.shape) if size % parts == 0]
        if parts == 1 or len(leaf.shape) < 2 or not axes:
            return NamedSharding(mesh, P())
        widest = max(axes, key=lambda i: leaf.shape[i])
        return NamedSharding(mesh, P(*(("fsdp" if i == widest else None) for i in range(len(leaf.shape)))))

    return jax.tree.map(place, tree)


def batch_sharding(mesh: jax.sharding.Mesh) -> NamedSharding:
    return NamedSharding(mesh, P(AXES))


def over_batches(mesh: jax.sharding.Mesh) -> Callable[[Callable], Callable]:
    """work(params, references, batches) with the batches, a first axis, shared out to the devices; so is its result."""
    return lambda work: jax.shard_map(work, mesh=mesh, in_specs=(P(), P(), P(AXES)), out_specs=P(AXES), check_vma=False)


def stacked_sharding(shardings: Any) -> Any:
    """Of states stacked on a new first axis: each member lies as it would alone."""
    return jax.tree.map(lambda one: NamedSharding(one.mesh, P(None, *one.spec)), shardings)


def over_members(work: Callable, config: MeshConfig, members: int) -> Callable:
    """`work` on arguments stacked on a first axis, `mesh.members` of them at a time, in one program.

    On a CPU, a member that goes alone has bitwise the numbers of a program of its own. Vmapped ones do not: products
    come out the same, but the sums in LayerNorm, softmax and bias gradients are taken in another order (1e-7 relative,
    from the first block on). Nor do they gain there, and need the memory of all at once, since one member keeps the
    cores busy; an accelerator is left idle by a small one.
    """
    at_once = config.members or (1 if jax.default_backend() == "cpu" else members)
    batch_size = None if at_once == 1 or members == 1 else min(at_once, members)
    return lambda *stacked: jax.lax.map(lambda one: work(*one), stacked, batch_size=batch_size)
