"""Bytes and kernels of a program as XLA compiles it for an H100, and the compiler's seconds.

The program is the training step, TwoNN's search, or those of a layer.

    pip install --no-deps --target TARGET jax-cuda12-pjrt==0.10.2 jax-cuda12-plugin==0.10.2
    export JAX_PLATFORMS=cpu PYTHONPATH=TARGET
    .venv/bin/python -m benchmarks.gpu_program [--backend=cpu] [--optimizer=muon] [--positions=rotary]
    … [--search | --panel=5]    # a row of benchmarks/metrics.py --panel, counted from 1

XLA's GPU compiler runs without a GPU. Every kernel is counted as often as its loop runs, with the bytes
that it reads and writes; `--backend=cpu` compiles the program that a CPU would run, for comparison.
Milliseconds are those bytes at 3.0 TB/s: a prediction, and no measurement.
"""

import argparse
import collections
import dataclasses
import functools
import re
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig, TrainConfig
from anisoscope.engine.cloud_programs import Selection, measure_layer
from anisoscope.engine.measure_clouds import make_constants
from anisoscope.engine.sizes import lay_out
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.resampling import TokenPositions
from anisoscope.models import fused_attention, transformer
from anisoscope.sources.folds import cut_runs
from anisoscope.training import optimizer, step
from benchmarks import metrics

H100 = """
gpu_device_info {
 threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
 shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
 device_memory_size: 84942979072 shared_memory_per_block_optin: 232448
 cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
 registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
BANDWIDTH = 3.0e12  # bytes a second
SIZES = {"f32": 4, "bf16": 2, "s32": 4, "u32": 4, "pred": 1, "s8": 1, "u8": 1, "s64": 8, "u64": 8}
NO_KERNEL = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"),
    *("partition-id", "conditional"),
}
Instruction = collections.namedtuple("Instruction", "name shape operation operands line")


def compile_step(config: RunConfig, backend: str) -> str:
    """Compile the training step for an H100; return the optimized HLO."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    # JAX asks the GPU at hand, and there is none.
    cudnn.check_compute_capability = lambda capability: True
    cudnn.is_cuda_compute_capability_equal = lambda capability: False
    cudnn.check_cudnn_version = lambda: 91000
    fused_attention._has_fused_attention = lambda: True
    model = transformer.build(config.model, 206, backend=backend)
    update = optimizer.make_optimizer(config.train)
    update_step = step.make_step(model.apply, update, config, 205)
    state = jax.eval_shape(lambda: step.init_state(model.init(jax.random.key(0)), update))
    seed, tokens_N = (
        jax.ShapeDtypeStruct(*x) for x in (((), jnp.uint32), ((2_000_000,), jnp.uint8))
    )
    return compile_for_h100(update_step, (state, seed, tokens_N), donate_argnums=0)


def compile_search(points: int = 4096, width: int = 512) -> str:
    """Compile TwoNN's search for two nearest neighbors; return the optimized HLO."""
    jax.default_backend = lambda: "gpu"  # what the search asks when it is traced
    cloud_PD = jax.ShapeDtypeStruct((points, width), jnp.float32)
    return compile_for_h100(nearest_neighbors, (cloud_PD,))


def compile_panel(row: str) -> list[str]:
    """Compile what measures a layer, in any batch or checkpoint; return the optimized HLOs."""
    families, nulls = metrics.PANELS[row]
    config = metrics.config_of(metrics.SHAPES["gpu"])
    points, width = config.measure.points, config.model.width
    jax.default_backend = lambda: "gpu"  # what the search asks when it is traced
    texts: dict[tuple, str] = {}

    def call(function: Callable, *arrays: Any, **static: Any) -> Any:
        work = functools.partial(function, **static)
        shapes = jax.eval_shape(lambda *arrays: arrays, *arrays)
        key = function, tuple(static.items()), str(shapes)
        if key not in texts:
            texts[key] = compile_for_h100(work, shapes)
        return jax.eval_shape(work, *arrays)

    places = TokenPositions(*np.divmod(np.arange(points), config.model.context))
    layout = lay_out(cut_runs(np.arange(points), config.measure.folds), places, exact=True)
    selection = Selection(families, nulls)
    constants = make_constants(selection, points, width, layout)
    cloud_PD = jax.ShapeDtypeStruct((points, width), jnp.float32)
    key, number = jax.random.key(0), np.uint32(0)
    measure_layer(call, cloud_PD, layout, selection, constants, key, number)
    return list(texts.values())


def compile_for_h100(function: Callable, arguments: Any, **options: Any) -> str:
    """Compile for an H100 without having a GPU; return the optimized HLO."""
    jax.local_devices()  # registers the plugin
    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="1x1x1", target_config=H100, topology="1x1x1"
    )
    mesh = Mesh(np.array(topology.devices).reshape(1), ("x",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    arguments = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=everywhere), arguments
    )
    traced = jax.jit(function, **options).trace(*arguments)
    return traced.lower(lowering_platforms=("cuda",)).compile().as_text()


def count_bytes(shape: str) -> int:
    """Count the bytes of an HLO shape, or of all arrays in a tuple."""
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    return sum(
        SIZES[kind] * int(np.prod([int(size) for size in sizes.split(",") if size]))
        for kind, sizes in arrays
        if kind in SIZES
    )


def parse(text: str) -> dict[str, list[Instruction]]:
    """Parse the instructions of every computation; the program's are under ENTRY."""
    computations, current = {}, None
    for line in text.splitlines():
        if head := re.match(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line):
            current = computations[head[2]] = []
            if head[1]:
                computations["ENTRY"] = current
        elif current is not None and (
            found := re.match(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([\w\-]+)\((.*)$", line)
        ):
            operands = re.findall(r"%([\w.\-]+)", found[4].partition(")")[0])
            current.append(Instruction(found[1], found[2], found[3], operands, line))
    return computations


def fusion_traffic(instructions: list[Instruction]) -> int:
    """Count the bytes that a fusion reads and writes; of a sliced parameter only the slice."""
    by_name = {x.name: x for x in instructions}

    def read(name: str, whole: int, depth: int = 0) -> int:
        total = 0
        for user in (x for x in instructions if name in x.operands):
            if user.operation in ("dynamic-slice", "slice", "gather") and user.operands[0] == name:
                total += count_bytes(user.shape)
            elif user.operation in ("bitcast", "reshape") and depth < 4:
                total += read(user.name, whole, depth + 1)
            elif not (
                user.operation in ("dynamic-update-slice", "scatter") and user.operands[0] == name
            ):
                return whole
        return min(total, whole)

    def written(x: Instruction) -> int:
        if x.operation == "dynamic-update-slice":
            return count_bytes(by_name[x.operands[1]].shape)
        if x.operation == "tuple":
            return sum(written(by_name[name]) for name in x.operands)
        if x.operation in ("bitcast", "reshape"):
            return written(by_name[x.operands[0]])
        return count_bytes(x.shape)

    root = next(x for x in instructions if x.line.lstrip().startswith("ROOT"))
    parameters = [x for x in instructions if x.operation == "parameter"]
    return written(root) + sum(read(x.name, count_bytes(x.shape)) for x in parameters)


def traffic(text: str) -> tuple[int, int]:
    """Count kernels and bytes of a program, multiplied by the iterations of loops."""
    computations = parse(text)

    def walk(name: str) -> tuple[int, int]:
        shapes = {x.name: x.shape for x in computations[name]}
        kernels = total = 0
        for x in computations[name]:
            if x.operation in ("while", "call"):
                key = "body" if x.operation == "while" else "to_apply"
                inner = walk(re.search(rf"{key}=%?([\w.\-]+)", x.line)[1])
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', x.line)
                times = int(trips[1]) if trips else 1
                kernels, total = kernels + times * inner[0], total + times * inner[1]
            elif x.operation == "fusion":
                fused = computations[re.search(r"calls=%?([\w.\-]+)", x.line)[1]]
                kernels, total = kernels + 1, total + fusion_traffic(fused)
            elif x.operation == "dynamic-slice":
                kernels, total = kernels + 1, total + 2 * count_bytes(x.shape)
            elif x.operation not in NO_KERNEL:
                operands = sum(count_bytes(shapes.get(name, "")) for name in x.operands)
                kernels, total = kernels + 1, total + operands + count_bytes(x.shape)
        return kernels, total

    return walk("ENTRY")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    defaults = {"backend": "gpu", "optimizer": "adamw", "positions": "learned", "mask": "causal"}
    for name, value in defaults.items():
        parser.add_argument(f"--{name}", default=value)
    parser.add_argument("--search", action="store_true", help="the search for neighbors instead")
    rows = list(metrics.PANELS)
    parser.add_argument("--panel", type=int, choices=range(1, 1 + len(rows)))
    flags = parser.parse_args()
    begin = time.process_time()
    model = ModelConfig(dtype="bfloat16", mask=flags.mask, position_encoding=flags.positions)
    train = dataclasses.replace(TrainConfig(), batch_size=64, optimizer=flags.optimizer)
    config = RunConfig(model=model, train=train)
    if flags.panel:
        texts = compile_panel(rows[flags.panel - 1])
        seconds, text = time.process_time() - begin, "".join(texts)
        counted = f"{text.count('fusion(')} fusions, {text.count(' sort(')} sorts"
        print(f"{len(texts)} programs compiled in {seconds:.1f} processor s; {counted}")
        return
    text = compile_search() if flags.search else compile_step(config, flags.backend)
    kernels, total = traffic(text)
    milliseconds = 1000 * total / BANDWIDTH
    print(f"{kernels} kernels, {total / 1e9:.2f} GB, {milliseconds:.2f} ms at 3.0 TB/s")


if __name__ == "__main__":
    main()
