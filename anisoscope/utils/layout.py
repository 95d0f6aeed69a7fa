"""How work is laid out on devices: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    data: int = setting(-1, "devices that split the batch; -1: all that fsdp leaves", low=-1)
    fsdp: int = setting(1, "devices that split parameters and batch", low=1)
    seeds: int | None = setting(None, "seeds at a time; left out: 1 on a CPU, else all", low=1)
    clouds: int | None = setting(
        None, "clouds at a time; left out: 1 on a CPU, else what fits", low=1
    )


def check_mesh(mesh: MeshConfig) -> None:
    """Raise UserError, one line, where a setting cannot be, whatever the devices."""
    check_fields(mesh, "mesh.")
    if not mesh.data:
        raise UserError(f"mesh.data is {mesh.data}; it must be at least 1, or -1 for all devices")
