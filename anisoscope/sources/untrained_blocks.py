"""Measure untrained blocks under a common bias: one program per kind of block.

There is one table per kind and norm of the bias. Letters: S seeds.
"""

import functools
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.metrics.attention import attention_statistics, attention_sums
from anisoscope.metrics.similarity import weighted_mean_cosine, weighted_mean_norm
from anisoscope.models.block import bias_queries_and_keys, layer_norm, make_block
from anisoscope.models.masks import visible_keys
from anisoscope.results import joined_files
from anisoscope.sources import untrained_tables
from anisoscope.sources.untrained_tables import Kind, bias_norm, kinds
from anisoscope.utils.processes import Stop
from anisoscope.utils.progress import progress_bar


class BlockDraw(NamedTuple):
    """What one seed fixes for all kinds: rows, direction and initial values."""

    x_BTD: Array  # rows of the embedding table
    direction_D: Array  # direction of the bias, norm 1
    params: dict  # all blocks, stacked on axis 0


def measure_blocks(config: UntrainedConfig, root: pathlib.Path, name: str, stop: Stop) -> None:
    """Write measurements/<kind>_<norm>.nc for every kind and norm, then the joined tables."""
    paths = {
        (kind, index): root / "measurements" / f"{'_'.join(kind)}_{index}.nc"
        for kind in kinds(config)
        for index in range(len(config.norms))
    }
    todo = [place for place, path in paths.items() if not path.exists()]
    if todo:
        seeds_S = jnp.arange(config.seed, config.seed + config.seeds, dtype=jnp.uint32)
        draws_S = draw_seeds(config, seeds_S)
        for kind, index in progress_bar(todo, f"{name}: measure", "table"):
            stop.check(f"{name}: stopped before {', '.join(kind)}, norm {config.norms[index]:g}")
            norm = bias_norm(config, kind, config.norms[index])
            visible_TT = visible_keys(block_config(config, kind), config.context)
            values = jax.device_get(measure_kind(config, kind, draws_S, norm, visible_TT))
            table = untrained_tables.kind_table(config, kind, index, values)
            joined_files.write_table(table, paths[kind, index])
    untrained_tables.join_kinds(config, list(paths.values()), root)
    tables = f"{len(paths)} tables ({len(todo)} now)"
    print(f"{name}: {tables}: {root / 'results.nc'}, {root / 'results.csv'}")


@functools.partial(jax.jit, static_argnums=(0, 1))
def measure_kind(
    config: UntrainedConfig, kind: Kind, draws_S: BlockDraw, norm: Array, visible_TT: Array
) -> dict[str, Array]:
    """Measure one kind and norm: {quantity: (seed,) or (seed, block)}; compiled once per kind.

    The mask is an argument: XLA would fold sums over a constant mask while compiling, and warn.
    Seeds run one after another: scores of several would fill the memory.
    """
    return jax.lax.map(lambda sample: measure_draw(config, kind, sample, norm, visible_TT), draws_S)


@functools.partial(jax.jit, static_argnums=0)
def draw_seeds(config: UntrainedConfig, seeds_S: Array) -> BlockDraw:
    """Draw rows, direction and blocks of every seed, one seed after another.

    The table itself is never formed: its row v is a function of the key and v.
    """
    initial, shape = initial_values(config), (config.sequences, config.context)
    # all kinds have the same parameters
    block = make_block(block_config(config, kinds(config)[0]), initial)

    def draw(seed: Array) -> BlockDraw:
        keys = jax.random.split(jax.random.key(seed), 4)
        tokens_BT = jax.random.randint(keys[0], shape, 0, config.vocabulary)
        rows_PD = jax.vmap(
            lambda token: initial(jax.random.fold_in(keys[1], token), (config.width,))
        )(tokens_BT.ravel())
        direction_D = jax.random.normal(keys[2], (config.width,))
        return BlockDraw(
            rows_PD.reshape(*shape, config.width),
            direction_D / jnp.linalg.norm(direction_D),
            jax.lax.map(block.init, jax.random.split(keys[3], config.blocks)),
        )

    return jax.lax.map(draw, seeds_S)


def initial_values(config: UntrainedConfig) -> Callable[..., Array]:
    """Return the initializer of tables and kernels."""
    initializers = jax.nn.initializers
    make = initializers.truncated_normal if config.truncated else initializers.normal
    return make(config.sigma)


def block_config(config: UntrainedConfig, kind: Kind) -> ModelConfig:
    """Return the settings of the blocks of a kind."""
    return ModelConfig(
        layers=config.blocks,
        norm=kind.norm_order,
        mask=kind.mask,
        width=config.width,
        heads=config.heads,
        context=config.context,
        expansion=config.expansion,
    )


# Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
@jax.default_matmul_precision("highest")
def measure_draw(
    config: UntrainedConfig, kind: Kind, sample: BlockDraw, norm: Array, visible_TT: Array
) -> dict[str, Array]:
    """Measure the biased input, and the output and attention of every block of the stack."""
    apply = make_block(block_config(config, kind), initial_values(config)).apply
    bias_D = norm * sample.direction_D
    none_D = jnp.zeros_like(bias_D)
    query_D, key_D = (
        bias_D if kind.target in (name, "both") else none_D for name in ("queries", "keys")
    )
    x_BTD = layer_norm(sample.x_BTD) if kind.embedding == "normed" else sample.x_BTD
    x_BTD = x_BTD + bias_D[None, None] if kind.target == "input" else x_BTD

    def through_block(x_BTD: Array, params: dict) -> tuple[Array, dict[str, Array]]:
        x_BTD, q_BTHK, k_BTHK = apply(bias_queries_and_keys(params, query_D, key_D), x_BTD)
        cloud_PD = x_BTD.reshape(-1, config.width)
        values = {
            "cosine_out": weighted_mean_cosine(cloud_PD),
            "norm_out": weighted_mean_norm(cloud_PD),
        }
        return x_BTD, values | attention_sharpness(q_BTHK, k_BTHK, visible_TT)

    cloud_PD = x_BTD.reshape(-1, config.width)
    entered = {"cosine_in": weighted_mean_cosine(cloud_PD), "norm_in": weighted_mean_norm(cloud_PD)}
    return entered | jax.lax.scan(through_block, x_BTD, sample.params)[1]


def attention_sharpness(q_BTHK: Array, k_BTHK: Array, visible_TT: Array) -> dict[str, Array]:
    """Compute deviations of scores, pooled over heads, and attention averaged over heads."""
    q_HBTK, k_HBTK = (jnp.moveaxis(x_BTHK, 2, 0) for x_BTHK in (q_BTHK, k_BTHK))
    heads = jax.lax.map(
        lambda qk_BTK: attention_statistics(attention_sums(*qk_BTK, visible_TT)), (q_HBTK, k_HBTK)
    )
    in_heads = jnp.square(heads.score_std).mean()
    return {
        "score_std": jnp.sqrt(in_heads + jnp.var(heads.score_mean)),
        "score_std_head": jnp.sqrt(in_heads),
        "score_std_within": jnp.sqrt(jnp.square(heads.score_std_within).mean()),
        "attention_entropy": heads.attention_entropy.mean(),
        "attention_max": heads.attention_max.mean(),
        "attention_min": heads.attention_min.mean(),
    }
