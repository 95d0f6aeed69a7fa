"""What the fast search for neighbours gains over plain ones: ratios of processor time on one core.

    python -m benchmarks.neighbours [--rounds 7]

Three searches take turns in one process, on a Gaussian cloud: the definition (`plain_neighbours`, every distance by
subtraction), rows of the Gram matrix with `jax.lax.top_k` and the same measuring of candidates, and the fast one. It
prints the table of docs/explanation/neighbours.md.
"""

import argparse
import time
from collections.abc import Callable
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.metrics import fast_search
from anisoscope.metrics.candidates import Proposed
from anisoscope.metrics.neighbours import nearest_neighbours, plain_neighbours
from benchmarks.rounds import hardware, on_one_core, ratio, spread

POINTS, WIDTHS, COUNTS = 4096, (64, 512), (2, 8, 128)
ROWS = 256  # of the Gram matrix that exist at once


def by_rows(x_PD: jax.Array, square_P: jax.Array, original_P: jax.Array, count: int) -> Proposed:
    """Candidates by `top_k` of whole rows of the Gram matrix: what `propose` would be without its tricks."""
    index_P = jnp.arange(len(x_PD))
    ranked_P = jnp.where(original_P == index_P, square_P, jnp.inf)

    def of_rows(i_A: jax.Array) -> Proposed:
        gram_AP = jnp.matmul(x_PD[i_A], x_PD.T, precision="highest")
        near_AP = jnp.maximum(ranked_P[None] + square_P[i_A][:, None] - 2.0 * gram_AP, 0.0)
        near_AP = jnp.where(i_A[:, None] == index_P[None], jnp.inf, near_AP)
        # without barriers XLA cuts `top_k` shorter, and then it is a sort of whole rows, some 50 times as long
        negative_AC, index_AC = map(jax.lax.optimization_barrier, jax.lax.top_k(-near_AP, count + 7))
        return index_AC[:, :-1], -negative_AC[:, -1]

    index_PC, beyond_P = jax.lax.map(of_rows, index_P.reshape(-1, ROWS))
    return index_PC.reshape(len(x_PD), -1), beyond_P.ravel()


def compiled(search: Callable, cloud_PD: jax.Array, count: int) -> Callable[[], object]:
    program = jax.jit(lambda cloud_PD: search(cloud_PD, count)[:2]).lower(cloud_PD).compile()
    return lambda: jax.block_until_ready(program(cloud_PD))


def seconds(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    on_one_core()
    print(hardware(jax.devices()[0].device_kind), end="\n\n")
    print("| width | neighbours | fast, ms | rows and top_k / fast | definition / fast |")
    print("| --- | --- | --- | --- | --- |")
    for width in WIDTHS:
        cloud_PD = jnp.asarray(np.random.default_rng(0).normal(size=(POINTS, width)), jnp.float32)
        for count in COUNTS:
            runs = {"fast": compiled(nearest_neighbours, cloud_PD, count)}
            runs["plain"] = compiled(plain_neighbours, cloud_PD, count)
            with mock.patch.object(fast_search, "propose", by_rows):
                runs["rows"] = compiled(nearest_neighbours, cloud_PD, count)
            times = {name: [] for name in runs}
            for run in runs.values():
                run()
            for number in range(rounds):
                for name, run in runs.items():
                    if name != "plain" or number < 3:
                        times[name].append(seconds(run))
            rows, plain = ratio(times["rows"], times["fast"]), ratio(times["plain"], times["fast"][:3], 0)
            print(f"| {width} | {count} | {spread(times['fast'])} | {rows} | {plain} |", flush=True)


if __name__ == "__main__":
    main()
