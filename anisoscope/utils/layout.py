"""How work is laid out on devices: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    data: int = -1  # devices that split the batch; -1: all that fsdp leaves
    fsdp: int = 1  # devices that split parameters and batch
    seeds: int | None = None  # seeds worked on at a time (vmapped); left out: 1 on a CPU, all on an accelerator
    clouds: int | None = None  # clouds and heads measured at a time; left out: 1 on a CPU, what fits on an accelerator


def check_mesh(mesh: MeshConfig) -> None:
    """Raise UserError, one line, where a setting cannot be, whatever the devices."""
    at_least("mesh.fsdp", mesh.fsdp, 1)
    at_least("mesh.seeds", mesh.seeds, 1)
    at_least("mesh.clouds", mesh.clouds, 1)
    if mesh.data != -1 and mesh.data < 1:
        raise UserError(f"mesh.data is {mesh.data}; it must be at least 1, or -1 for all devices")
