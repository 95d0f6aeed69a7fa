"""Measure the activations of batches of windows: pick their clouds, and hand them to the engine.

Shape letters are those of docs/reference/letters.md, and W windows of a batch, S position sets, Z inputs.
"""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.engine.cloud_programs import ReferenceClouds, Selection
from anisoscope.engine.measure_clouds import LensInput, measure_all_heads, measure_clouds
from anisoscope.engine.null_models import permuted
from anisoscope.engine.sizes import lay_out
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.logit_lens import Unembedding
from anisoscope.metrics.quantity import MEASURED, PERMUTED, Values
from anisoscope.metrics.registry import FAMILIES, select_kind
from anisoscope.metrics.resampling import TokenPositions, Types
from anisoscope.sources.folds import cut_runs
from anisoscope.sources.massive_tokens import Choice, MassiveTokens, choose_others
from anisoscope.utils import mesh

INPUTS = (MEASURED, "shuffled")  # the windows, and the same characters in random order
_permuted = jax.jit(permuted, static_argnums=(1, 2))


class BatchActivations(NamedTuple):
    """Activations of the inputs of a batch, and what the logit lens and attention need.

    They are arrays of NumPy, or lie on a device.
    """

    resid_ZLBTD: Any
    q_ZNBTHK: Any = None  # None: no family reads queries and keys
    k_ZNBTHK: Any = None
    unembedding: Unembedding | None = None  # maps a vector of any layer to logits
    target_ZBT: np.ndarray | None = None  # the token to predict at each position; below 0: none
    bias_NHTT: np.ndarray | None = None  # added to the scores, the same in every window
    types_Z: Types | None = None  # at all positions of each input; None: unknown
    layers: tuple[int, ...] | None = None  # numbers of the layers; None: from 0 on


def measure_batch(
    batch: int,
    read_Z: BatchActivations,
    reference_clouds: dict[str, Any],
    picks_SP: np.ndarray,
    visible_STT: np.ndarray,
    settings: MeasureConfig,
    massive: MassiveTokens | None = None,
) -> dict[str, Values]:
    """Measure one batch of windows, {sample: {quantity: (1, positions, *dims, R)}} in NumPy.

    Args:
        batch: number of the batch, which selects its random key.
        read_Z: activations of the inputs that `input_names(settings)` lists, in that order.
        reference_clouds: residual streams (N, W, T, D) of the same windows to compare with, {"previous": …,
            "last": …}.
        picks_SP: positions in the windows, fold after fold of whole windows, equally many per fold.
        visible_STT: which key (column) each query sees, by set of positions.
        settings: what to measure; ValueError where the arguments do not fit.
        massive: the massive tokens of these inputs, for a last set without them.
    """
    _check(read_Z, picks_SP, settings)
    inputs = len(read_Z.resid_ZLBTD)
    sets = [[Choice(*chosen)] * inputs for chosen in zip(picks_SP, visible_STT, strict=True)]
    if massive is not None:
        sets.append([*choose_others(massive, visible_STT[0], settings.points)])

    def measure_set(s: int) -> dict[str, Values]:
        return _measure_positions(read_Z, reference_clouds, sets[s], batch, settings)

    parts = mesh.map_over_devices(measure_set, len(sets))
    return jax.tree.map(lambda *values: np.stack(values)[None], *parts)


def join_batches(batches: list[dict[str, Values]]) -> dict[str, Values]:
    """Join the values of all batches."""
    return jax.tree.map(lambda *values: np.concatenate(values), *batches)


@jax.enable_x64(False)
def _measure_positions(
    read_Z: BatchActivations,
    residuals: dict[str, Any],
    chosen: list[Choice],
    batch: int,
    settings: MeasureConfig,
) -> dict[str, Values]:
    """Measure one set of positions of a batch, chosen in each input, without the axes of both."""
    context, picks_P = read_Z.resid_ZLBTD.shape[3], chosen[0].picks_P
    key = batch_keys(settings.seed, settings.batches)[batch]
    folds = cut_runs(np.arange(len(picks_P)), settings.folds)
    reference_clouds = ReferenceClouds(
        {name: _pick(x_LBTD[None], 0, picks_P) for name, x_LBTD in residuals.items()}, {}
    )
    if PERMUTED in settings.nulls:
        clouds_NPD = pick_permuted(read_Z.resid_ZLBTD, 0, picks_P, key, chosen[0].massive_P)
        reference_clouds.nulls[PERMUTED] = clouds_NPD
    lens = None
    if read_Z.unembedding is not None:
        lens = LensInput(read_Z.unembedding, np.ravel(read_Z.target_ZBT[0])[picks_P])
    heads = select_kind(settings.families, "heads")
    values = {}
    kinds = {FAMILIES[name].kind for name in settings.families}
    for z, name in enumerate(input_names(settings)):
        values[name], picks_P = {}, chosen[z].picks_P
        if heads:
            values[name] |= _measure_input_heads(read_Z, z, chosen[z], heads, settings.folds)
        if not kinds & {"cloud", *(() if z else ("layers", "logit_lens"))}:
            continue
        types = jax.tree.map(lambda x_Z, z=z: x_Z[z][..., chosen[z].picks_P], read_Z.types_Z)
        found = measure_clouds(
            _pick(read_Z.resid_ZLBTD, z, picks_P),
            lay_out(folds, TokenPositions(*np.divmod(picks_P, context)), types=types, exact=True),
            folds,
            Selection(settings.families, () if z else settings.nulls),
            key,
            range(read_Z.resid_ZLBTD.shape[1]) if read_Z.layers is None else read_Z.layers,
            lambda takes: None,
            lens,
            reference_clouds,
            pairs=z == 0,
        ).values
        values[name] |= found.pop(MEASURED)
        values |= found
    return values


def _measure_input_heads(
    read_Z: BatchActivations,
    z: int,
    chosen: Choice,
    families: tuple[str, ...],
    folds: int,
) -> Values:
    """Measure the queries and keys of an input."""
    q_NBTHK, k_NBTHK = (x_ZNBTHK[z] for x_ZNBTHK in (read_Z.q_ZNBTHK, read_Z.k_ZNBTHK))
    heads = Heads(q_NBTHK, k_NBTHK, chosen.picks_P, chosen.visible, read_Z.bias_NHTT)
    windows = cut_runs(np.arange(q_NBTHK.shape[1]), folds)
    return measure_all_heads(heads, windows, families, lambda takes: None)


def input_names(settings: MeasureConfig) -> tuple[str, ...]:
    """Name the inputs that a source reads of each batch of windows."""
    return INPUTS if "shuffled" in settings.nulls else INPUTS[:1]


def batch_keys(seed: int | Array, batches: int) -> Array:
    """Make one random key of the null models for each batch."""
    return jax.random.split(jax.random.key(seed), batches)


def pick_permuted(
    x_ZLBTD: Any, z: int, picks_P: np.ndarray, key: Array, massive_P: np.ndarray | None = None
) -> Any:
    """Pick the same positions of other windows, (N, P, D); NaN where there is only one window.

    Where a position is massive there, the next window takes its place.
    """
    windows, context = x_ZLBTD.shape[2:4]
    other_P = np.asarray(_permuted(picks_P, windows, context, key))
    for _ in range(0 if massive_P is None else windows - 2):
        if not massive_P[other_P].any():
            break
        next_P = np.asarray(_permuted(other_P, windows, context, key))
        other_P = np.where(massive_P[other_P], next_P, other_P)
    clouds_NPD = _pick(x_ZLBTD, z, other_P)
    return clouds_NPD if windows > 1 else clouds_NPD * np.float32(np.nan)


def _pick(x_ZLBTD: Any, z: int, picks_P: np.ndarray) -> Any:
    """Pick the vectors at these positions in every layer of an input, (N, P, D), where they lie."""
    pick = _pick_clouds if isinstance(x_ZLBTD, np.ndarray) else _pick_on_device
    return pick(x_ZLBTD, z, picks_P)


def _pick_clouds(x_ZLBTD: Any, z: int, picks_P: np.ndarray) -> Any:
    x_LBTD = x_ZLBTD[z]
    return x_LBTD.reshape(len(x_LBTD), -1, x_LBTD.shape[-1])[:, picks_P]


_pick_on_device = functools.partial(jax.jit, static_argnums=1)(_pick_clouds)


def _check(read_Z: BatchActivations, picks_SP: np.ndarray, settings: MeasureConfig) -> None:
    """Raise ValueError where the arrays do not fit the settings, or are not finite."""
    available = {"heads": read_Z.q_ZNBTHK, "logit_lens": read_Z.unembedding}
    for name in settings.families:
        kind = FAMILIES[name].kind
        lacking = kind in available and available[kind] is None
        if lacking or (FAMILIES[name].reads_types and read_Z.types_Z is None):
            raise ValueError(f"families: {name} cannot be measured on these arrays; leave it out")
    names = input_names(settings)
    if len(read_Z.resid_ZLBTD) != len(names):
        raise ValueError(
            f"activations have {len(read_Z.resid_ZLBTD)} inputs; "
            f"pass {len(names)}: {' and '.join(names)}"
        )
    if picks_SP.shape[1] != settings.points:
        raise ValueError(
            f"picks_SP has {picks_SP.shape[1]} points; pass measure.points={settings.points}"
        )
    read = read_Z.resid_ZLBTD
    if isinstance(read, np.ndarray) and not np.isfinite(read).all():
        raise ValueError("activations are not finite; check the program that made them")
