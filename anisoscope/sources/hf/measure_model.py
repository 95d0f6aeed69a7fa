"""One model in one's own code, by name or in memory: measured as the command does it, without a
folder.

Letters: Z inputs of a batch: its windows, and shuffled ones.
"""

import dataclasses
import json
import math
import numbers
import pathlib
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import ALONE, PretrainedConfig
from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.results import join
from anisoscope.sources import array_checks
from anisoscope.sources.hf import hooked, load_model, separate_texts
from anisoscope.sources.hf.adapters import has_scores
from anisoscope.sources.hf.borrowed_model import evaluation_mode, open_model
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading import guards, logits, named_modules
from anisoscope.sources.hf.reading.extract import residual_stream
from anisoscope.sources.hf.reading.token_windows import make_windows, special_frame
from anisoscope.sources.hf.reading_plan import OF_HEADS, Plan
from anisoscope.sources.hf.residuals import COMPARED, Residuals
from anisoscope.sources.hf.revision import (
    as_attributes,
    check_model,
    measure_clouds,
    measure_stream,
)
from anisoscope.sources.hf.revision_sweep import attributes
from anisoscope.sources.hf.texts import Text, read_texts
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose, once, replace

NULLS = ("gaussian", "shuffled")
CALLED = "the text"


@dataclasses.dataclass(frozen=True)
class Options:
    """How `anisoscope.measure_model` reads a text."""

    window: int
    points: int
    batches: int | None
    special_tokens: bool
    dtype: str
    batch_size: int
    padding: str | None
    pool: str | Sequence[str]


def measure_model(
    model: Any,
    texts: Any,
    tokenizer: Any,
    hook_points: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
    options: Options,
) -> xr.Dataset:
    """`api.measure_model`."""
    try:
        pools = check_pools(options)
        plain = hook_points is None and not options.padding and not pools
        config = make_config(options, families, nulls, seed, plain)
        with load_model.quiet():
            loaded, tokenizer = open_model(model, tokenizer, config, hook_points is not None)
            modules = (
                None if hook_points is None else hooked.find_modules(loaded.model, hook_points)
            )
            text, parts = read_texts(texts)
            if options.special_tokens:
                check_frames(tokenizer, parts)
            with evaluation_mode(loaded):
                if options.padding or pools:
                    return measure_texts(loaded, tokenizer, text, parts, config, modules, options)
                if modules is not None:
                    return measure_modules(loaded, tokenizer, text, config, modules)
                if "all" in (families, *families):
                    config = replace(
                        config,
                        {"measure.families": measurable_families(loaded, config.measure.families)},
                    )
                table = measure_stream_of(loaded, tokenizer, text, config)
    except UserError as error:
        # a message of the command, whose settings are arguments here
        raise ValueError(
            re.sub(r"(--config\.)?\b(measure|pretrained)\.(?!py\b)", "", str(error))
        ) from error
    bits, bound = table.attrs["bits_per_byte"], table.attrs["bits_bound"]
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits a byte of this text, and the frequencies of the text's tokens need "
            f"{bound:.2f}: it is not trained, or has another tokenizer or other weights, or does not know such a text",
            stacklevel=3,
        )
    return table


def measurable_families(loaded: PretrainedModel, families: tuple[str, ...]) -> tuple[str, ...]:
    """Those of all that this model has."""
    without = () if has_scores(loaded.adapter) else OF_HEADS
    shown = getattr(loaded.model.config, "is_causal", True) is False
    if shown or logits.missing_head(loaded.adapter, type(loaded.model).__name__):
        without = (*without, logits.FAMILY)
    return tuple(family for family in families if family not in without)


def check_pools(options: Options) -> tuple[str, ...]:
    """UserError where one is not known, or texts are to be padded on no side that there is."""
    if not isinstance(options.points, numbers.Integral):
        raise UserError(
            f"points is {options.points!r}; it is the number of vectors: names of modules are hook_points="
        )
    pools = (options.pool,) if isinstance(options.pool, str) else tuple(options.pool)
    for pool in pools:
        choose("pool", pool, separate_texts.POOLS)
    once("pool", pools)
    if options.padding is not None:
        choose("padding", options.padding, separate_texts.SIDES)
    if "cls" in pools and not options.special_tokens:
        raise UserError(
            "pool=cls is the special token that begins a text: pass special_tokens=True"
        )
    return pools


def check_frames(tokenizer: Any, parts: list[str]) -> None:
    """Raise UserError where a text spells the special token that the tokenizer puts before it."""
    first = tokenizer.convert_ids_to_tokens(special_frame(tokenizer)[0][:1])
    for number, part in enumerate(parts):
        if first and part.lstrip().startswith(first[0]):
            raise UserError(
                f"texts: number {number} begins with {first[0]}, which special_tokens=True puts there once more; "
                "leave special_tokens out, or take it off the texts"
            )


def make_config(
    options: Options,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
    plain: bool,
) -> PretrainedConfig:
    """Settings of the command; `plain` where the residual stream of windows is read, with its
    queries and keys.
    """
    apart = bool(options.padding or options.pool)
    batches = options.batches if options.batches is not None else 1 if apart else 2
    settings = {"window": options.window, "special_tokens": options.special_tokens}
    settings |= {"pretrained.dtype": str(options.dtype).removeprefix("torch.")}
    settings |= {"pretrained.batch_size": options.batch_size}
    settings |= {"measure.points": options.points, "measure.batches": batches, "measure.seed": seed}
    heads, what = (
        ((*array_checks.OF_HEADS, logits.FAMILY), "a model")
        if plain
        else ((), "hook points and separate texts")
    )
    wanted = array_checks.choose_families(families, (*array_checks.OF_VECTORS, *heads), source=what)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    allowed = ("gaussian",) if apart else NULLS
    for null in nulls:
        if null not in allowed:
            made = "of separate texts" if null in NULLS else "of a lone model"
            raise UserError(
                f"nulls: {null!r} cannot be made {made}; choose from {', '.join(allowed)}"
            )
    return replace(
        PretrainedConfig(), settings | {"measure.families": wanted, "measure.nulls": nulls}
    )


def make_plan(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig
) -> Plan:
    """Windows of a text, as the command draws them."""
    rate = loaded.adapter.rate
    rate = getattr(loaded.model.config, rate) if rate else 1
    windows = make_windows(
        text.content, tokenizer, config.window, config.special_tokens, config.measure, rate, CALLED
    )
    return Plan(config, windows, "", bar="measure_model")


def describe_plan(plan: Plan, text: Text) -> dict[str, Any]:
    """What tables say of text, windows and settings."""
    config = plan.config
    about = attributes(config, text, plan.windows, config.pretrained.name)
    del about["config"]  # names a text that was not read
    return about | {"seed": config.measure.seed, "window": config.window, "anisoscope": __version__}


def measure_stream_of(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig
) -> xr.Dataset:
    """The tables of the command for a model alone, without its step and what compares it with
    others.
    """
    config = replace(
        config, {"pretrained.name": loaded.about["pretrained"], "pretrained.most_bits": math.inf}
    )
    plan = make_plan(loaded, tokenizer, text, config)
    alone = Residuals(pathlib.Path(), [ALONE], wanted=False, read=lambda step: [])
    raw = measure_stream(
        plan,
        check_model(plan, loaded),
        ALONE,
        last=True,
        beside=alone,
        made=describe_plan(plan, text),
    )
    raw.attrs["bits_bound"] = guards.bits_bound(plan.windows)
    return join_step(raw, config.measure)


def join_step(raw: xr.Dataset, measure: MeasureConfig) -> xr.Dataset:
    """The table of a step, without step and comparisons with others."""
    results, _ = join.joined({ALONE: raw}, measure.families, measure.nulls)
    join.mark_noise(results, json.loads(raw.attrs[join.NOISE]))
    others = [f"{kind}_{name}" for kind in KINDS for name in COMPARED]
    results = results.drop_vars(
        [name for name in results.data_vars if name.startswith(tuple(others))]
    )
    return results.isel(step=0).drop_vars("step")


def measure_modules(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig, modules: dict
) -> xr.Dataset:
    """Outputs of named modules, of the same windows and points."""
    config = replace(config, {"pretrained.name": loaded.about["pretrained"]})
    plan = make_plan(loaded, tokenizer, text, config)
    if isinstance(loaded.model, transformers.PreTrainedModel):
        guards.check_vocabulary(loaded, plan.windows)
        guards.check_window(loaded, config.window, 0)

    named_ones = {"hook_points": ", ".join(modules), "layer_0": "a hook point, as the others"}
    about = as_attributes(loaded.about | describe_plan(plan, text) | named_ones)

    def clouds(inputs_ZWT: np.ndarray, size: int, _: bool) -> np.ndarray:
        return named_modules.read_windows(loaded, inputs_ZWT, size, modules)

    table = join_step(
        measure_clouds(plan, clouds, ALONE, last=True, attributes=about), config.measure
    )
    return table.assign_coords(
        {dim: [*modules] for dim in ("layer", "other_layer") if dim in table.dims}
    )


def measure_texts(
    loaded: PretrainedModel,
    tokenizer: Any,
    text: Text,
    parts: list[str],
    config: PretrainedConfig,
    modules: dict | None,
    options: Options,
) -> xr.Dataset:
    """Separate texts in padded batches; of modules, or of the residual stream."""
    measure, pools, side = config.measure, check_pools(options), options.padding or "right"
    given = parts, tokenizer, config.window, config.special_tokens
    tokens = separate_texts.draw_texts(*given, bool(pools), measure)
    if modules is not None and any(
        x.ndim == 2 for x in named_modules.read_modules(loaded, modules, tokens.ids[0][None])
    ):
        # a vector for each text: as many texts are needed
        tokens = separate_texts.draw_texts(*given, True, measure)
    if "cls" in pools and not special_frame(tokenizer)[0]:
        raise UserError(
            "pool=cls: this tokenizer puts no special token before a text; take mean or last"
        )
    picks = separate_texts.pick_tokens(tokens, measure)
    kept = separate_texts.KeptVectors(tokens, picks, pools)
    pad = next(
        (one for one in (tokenizer.pad_token_id, tokenizer.eos_token_id) if one is not None), 0
    )

    def read(ids_BT: np.ndarray, mask_BT: np.ndarray) -> list[torch.Tensor]:
        if modules is not None:
            return named_modules.read_modules(loaded, modules, ids_BT, mask_BT)
        return residual_stream(loaded, ids_BT, **named_modules.padding_arguments(loaded, mask_BT))[
            0
        ]

    said = separate_texts.read_batches(
        tokens, kept, read, options.batch_size, side, pad, loaded.about["computed_in"]
    )
    table = separate_texts.measure_kept(
        tokens, kept, picks, None if modules is None else [*modules], measure
    )
    about = as_attributes(loaded.about) | {
        "corpus": text.name,
        "corpus_sha256": text.sha256,
        "texts": f"{len(tokens.ids)} of {len(parts)} texts, each cut to {config.window} tokens, padded on the {side}",
        "texts_without_tokens": tokens.empty,
        "padding": said,
        "window": config.window,
        "anisoscope": __version__,
    }
    return table.assign_attrs(about | ({"hook_points": ", ".join(modules)} if modules else {}))
