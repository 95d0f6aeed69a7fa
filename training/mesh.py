"""How batch and parameters lie on the devices."""

from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from errors import UserError
from experiments.base import MeshConfig


def make_mesh(config: MeshConfig) -> jax.sharding.Mesh:
    devices = jax.device_count()
    data = devices // config.fsdp if config.data == -1 else config.data
    if data * config.fsdp != devices:
        raise UserError(f"mesh.data={config.data} × mesh.fsdp={config.fsdp} does not use all of {devices} devices")
    return jax.make_mesh((data, config.fsdp), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)


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
    return NamedSharding(mesh, P(("data", "fsdp")))
