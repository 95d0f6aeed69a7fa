"""The decorator of public metrics: matrices of any library in, one number out."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec

import jax
import numpy as np
from jaxtyping import Array

from anisoscope.metrics import lapack
from anisoscope.metrics.cloud import Scalar
from anisoscope.metrics.convert import matrix, matrix_pair
from anisoscope.utils import compiled

P = ParamSpec("P")


def public_metric(
    about_mean: bool = True, any_size: bool = True, least_k: int = 1
) -> Callable[[Callable[P, Array]], Callable[P, Scalar]]:
    """Make the decorator of a metric, whose body reads matrices in float32.

    It checks and converts the matrices and k, compiles once for each shape and k, in float32
    whatever `jax_enable_x64` is, and completes the docstring. `about_mean` and `any_size`: the
    metric does not depend on the origin, or on the size of the vectors. `least_k`: smallest k.
    """

    def decorate(read: Callable[P, Array]) -> Callable[P, Scalar]:
        signature = inspect.signature(read)

        @functools.partial(jax.jit, static_argnames=("k",))
        def compute(*matrices: Array, **k: int) -> Array:
            with jax.default_matmul_precision("highest"):
                return read(*matrices, **k)

        @functools.wraps(read)
        def metric(*args: P.args, **kwargs: P.kwargs) -> Scalar:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = bound.arguments
            if "y" in values:
                matrices = matrix_pair(values["x"], values["y"])
            else:
                matrices = (matrix(values["x"], about_mean, any_size),)
            k = {"k": values["k"]} if "k" in values else {}
            if k:
                _check_k(values["k"], least_k, matrices[0].shape[0])
            traced = any(isinstance(x, jax.core.Tracer) for x in matrices)
            with jax.enable_x64(False):
                if traced:
                    return compute(*matrices, **k)
                with compiled.library_programs:
                    if jax.default_backend() != "cpu":
                        return compute(*matrices, **k)
                    with lapack.threads_for(min(matrices[0].shape)):
                        return jax.block_until_ready(compute(*matrices, **k))

        metric.__doc__ = _complete(
            inspect.getdoc(read) or "", signature, about_mean, any_size, least_k
        )
        return metric

    return decorate


def _check_k(k: object, least: int, points: int) -> None:
    whole = isinstance(k, int | np.integer) and not isinstance(k, bool)
    if not whole or not least <= k < points:
        raise ValueError(f"k is {k!r}; pass {least} to {points - 1} for {points} points")


def _complete(
    text: str, signature: inspect.Signature, about_mean: bool, any_size: bool, least_k: int
) -> str:
    """Insert into a docstring the sections that follow from the options of a metric alone."""
    pair = "y" in signature.parameters
    args = "Args:\n    x: (points, width), any unit.\n"
    args += "    y: (points, other width), the same points in the same order.\n" if pair else ""
    raises = "x is not a matrix of real numbers with two points or more"
    if pair:
        raises = "x or y is not a matrix of real numbers, or their points differ"
    if "k" in signature.parameters:
        args += f"    k: number of neighbors, {least_k} or more, below the number of points.\n"
        raises += "; or k is out of its range"
    if not about_mean:
        raises += "; or so far from the origin that float32 loses the differences of its points"
    if not any_size:
        raises += "; or float32 cannot hold the squares of its coordinates"
    text, _, own = text.partition("Raises:\n")
    text = f"{text.rstrip()}\n\n{args}\nReturns:\n    A JAX scalar in float32.\n\nRaises:\n"
    return text + (own or f"    ValueError: {raises}.")
