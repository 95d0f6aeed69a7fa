"""Compile programs when they are needed, side by side, and keep them by the shapes of their arrays.

A program is a pure function of arrays and of static settings; every array of a call is an argument.
"""

import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax

# On a CPU compiling is most of a first call. So it takes 0.5 to 0.65 of the processor time, and what
# is compiled runs as fast (docs/reference/speed.md).
CPU_OPTIONS = {
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,  # programs are compiled side by side anyhow
    "xla_backend_optimization_level": 1,
}

Call = Callable[..., Any]  # (function, *arrays, **static settings) -> what the function returns

_futures: dict[tuple, concurrent.futures.Future] = {}
_lock = threading.Lock()


@functools.cache
def _pool() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="compile")


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """Set what the programs assume; settings of the caller's thread reach no other thread."""
    # accelerators round the factors of float32 products to TF32 or bfloat16 by default
    with jax.enable_x64(False), jax.default_matmul_precision("highest"):
        yield


@functools.cache
def _jitted(function: Callable, static: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(functools.partial(function, **dict(static)))


def compile_ahead(function: Callable, *arrays: Any, **static: Any) -> Any:
    """Start to compile a program in a thread, and return the shapes of what it returns."""
    _submit(function, arrays, static)
    with _settings():
        return jax.eval_shape(_jitted(function, tuple(static.items())), *arrays)


def make_run(check: Callable[[int], None]) -> Call:
    """Make the function that runs programs, after `check` of the bytes that each takes."""

    def run(function: Callable, *arrays: Any, **static: Any) -> Any:
        program, takes = _submit(function, arrays, static).result()
        check(takes)
        result = program(*arrays)
        # on a CPU, programs at the same time would wait for one another's threads
        return jax.block_until_ready(result) if jax.default_backend() == "cpu" else result

    return run


def _submit(function: Callable, arrays: tuple, static: dict) -> concurrent.futures.Future:
    leaves, structure = jax.tree.flatten(arrays)
    shapes = tuple(jax.ShapeDtypeStruct(jax.numpy.shape(x), x.dtype) for x in leaves)
    key = function, tuple(static.items()), structure, shapes, jax.config.jax_default_device
    with _lock:
        if key not in _futures or _futures[key].cancelled():
            _futures[key] = _pool().submit(_compile, *key)
        return _futures[key]


def _compile(
    function: Callable, static: tuple, structure: Any, shapes: tuple, device: jax.Device | None
) -> tuple[jax.stages.Compiled, int]:
    """Compile a program; return it, and the bytes that it takes: to ask takes longer than to run."""
    with _settings(), jax.default_device(device):
        arguments = jax.tree.unflatten(structure, shapes)
        program = _compile_lowered(_jitted(function, static).lower(*arguments))
    needs = program.memory_analysis()
    parts = ("temp_size_in_bytes", "output_size_in_bytes", "argument_size_in_bytes")
    return program, 0 if needs is None else sum(getattr(needs, part) for part in parts)


def _compile_lowered(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    if jax.default_backend() != "cpu":
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=CPU_OPTIONS)
    except jax.errors.JaxRuntimeError:  # an XLA that has no such option
        return lowered.compile()


def count_programs() -> dict[str, int]:
    """Count the programs compiled so far, by the name of the function or of its family."""
    counts: dict[str, int] = {}
    for function, static, *_ in list(_futures):
        name = dict(static).get("name", function.__name__)
        counts[name] = counts.get(name, 0) + 1
    return counts
