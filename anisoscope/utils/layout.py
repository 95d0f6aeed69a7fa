"""Settings of the device mesh."""

from dataclasses import dataclass

from anisoscope.utils.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    data: int = setting(
        -1, "data parallelism: devices that split the batch; -1: all devices / fsdp", low=-1
    )
    fsdp: int = setting(1, "fully sharded: devices that split parameters and batch", low=1)
    seeds: int | None = setting(
        None, "seeds trained at a time; None: 1 on a CPU, all on an accelerator", low=1
    )
    clouds: int | None = setting(
        None, "clouds measured at a time; None: 1 on a CPU, else as many as fit in memory", low=1
    )
