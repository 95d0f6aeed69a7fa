"""Measure a model from a user's code as the command does, without writing a folder."""

import contextlib
import json
import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.config.pretrained_config import (
    ALONE,
    PretrainedConfig,
    WeightsConfig,
    check_pretrained,
    revision_steps,
)
from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.results import join
from anisoscope.sources import array_checks
from anisoscope.sources.hf import guards, logits, separate_texts
from anisoscope.sources.hf.adapters import adapter_name
from anisoscope.sources.hf.borrowed_model import MEMORY, evaluation_mode, model_in_memory
from anisoscope.sources.hf.load_model import (
    PretrainedModel,
    load_model,
    quiet,
    read_tokenizer,
    tokens_per_position,
)
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.residuals import COMPARED
from anisoscope.sources.hf.revision import (
    Plan,
    check_model,
    measure_revision,
    unmeasurable_families,
)
from anisoscope.sources.hf.token_windows import Text, make_windows, read_texts, special_frame
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose, once, replace

NULLS = (*CLOUD_NULLS, "shuffled")


def measure_model(
    model: Any,
    texts: Any,
    revision: str | Sequence[str] | None,
    tokenizer: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    padding: str | None,
    pool: str | Sequence[str],
    settings: dict[str, Any],
) -> xr.Dataset:
    """Measure a model, or each of several revisions, as `anisoscope.measure_model` documents.

    `settings` are those of the command, by dotted name. With padding or pools, texts are read one
    by one, in padded batches.
    """
    pools = (pool,) if isinstance(pool, str) else tuple(pool)
    everything = "all" in (families, *families)
    with as_arguments(), quiet():
        text, config = read_texts(texts), make_config(families, nulls, padding, pools, settings)

        def measure(name: str | None) -> xr.Dataset:
            loaded, own_tokenizer = open_model(model, name, tokenizer, config)
            if config.special_tokens:
                check_frames(own_tokenizer, text.parts)
            opened = replace(config, {"pretrained.name": loaded.attributes["pretrained"]})
            with evaluation_mode(loaded):
                if padding or pools:
                    side = padding or "right"
                    return separate_texts.measure_texts(
                        loaded, own_tokenizer, text, opened, side, pools
                    )
                return measure_windows(loaded, own_tokenizer, text, opened, everything)

        if revision is None or isinstance(revision, str):
            return measure(revision)
        if not revision:
            raise UserError("revision is empty; pass one name or several, or leave it out")
        revisions = revision_steps(WeightsConfig(revisions=tuple(revision)))
        tables = [measure(name) for name in revisions.values()]
    read = ("windows", "first_tokens", "tokens_per_byte")
    if len({tuple(str(table.attrs.get(name)) for name in read) for table in tables}) > 1:
        raise ValueError("revision: tokenizers and windows differ; measure revisions one by one")
    steps = xr.DataArray(list(revisions), dims="step", name="step")
    table = xr.concat(tables, steps, join="exact", combine_attrs="drop_conflicts")
    return table.assign_coords(revision=("step", list(revisions.values())))


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """Raise a UserError, which names settings of the command, as a ValueError about arguments."""
    try:
        yield
    except UserError as error:
        description = re.sub(
            r"^--similarity: |(--config\.)?\b(measure|pretrained)\.(?!py\b)", "", str(error)
        )
        raise ValueError(description) from error


def make_config(
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    padding: str | None,
    pools: tuple[str, ...],
    settings: dict[str, Any],
) -> PretrainedConfig:
    """Check families, null models, padding and pools, and join them with the settings."""
    separate = bool(padding or pools)
    for pool in pools:
        choose("pool", pool, separate_texts.POOLS)
    once("pool", pools)
    if padding is not None:
        choose("padding", padding, separate_texts.SIDES)
    if "cls" in pools and not settings["special_tokens"]:
        raise UserError(
            "pool=cls: pass special_tokens=True, which puts that token before each text"
        )
    inputs, source = array_checks.VECTOR_INPUTS, "separate texts"
    if not separate:
        inputs, source = (*inputs, *array_checks.HEAD_INPUTS, logits.FAMILY), "a model"
    families = array_checks.choose_families(families, inputs, source=source)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    allowed = CLOUD_NULLS if separate else NULLS
    for null in nulls:
        if null not in allowed:
            source = "separate texts" if null in NULLS else "a lone model"
            raise UserError(
                f"nulls: {null!r} cannot be made of {source}; choose from {', '.join(allowed)}"
            )
    if settings["measure.batches"] is None:
        settings = settings | {"measure.batches": 1 if separate else 2}
    # a warning in place of the command's refusal
    settings = settings | {"pretrained.max_bits_per_byte": math.inf}
    return replace(
        PretrainedConfig(), settings | {"measure.families": families, "measure.nulls": nulls}
    )


def open_model(
    model: Any, revision: str | None, tokenizer: Any, config: PretrainedConfig
) -> tuple[PretrainedModel, Any]:
    """Return the model and its tokenizer, loading both where a name or a path is passed."""
    if isinstance(model, tuple):
        if tokenizer is not None:
            raise UserError("model is (model, tokenizer); leave tokenizer= out")
        model, tokenizer = model
    by_name = isinstance(model, str | os.PathLike)
    name = os.fspath(model) if by_name else MEMORY
    check_pretrained(replace(config, {"pretrained.name": name}))
    if by_name:
        location = find_weights(name, revision)
        loaded = load_model(location, config.pretrained)
        tokenizer = read_tokenizer(location) if tokenizer is None else tokenizer
    elif revision is not None:
        raise UserError("revision is of a hub name or a local folder, and the model is in memory")
    else:
        loaded = model_in_memory(model, tokenizer)
        name = f"{getattr(model, 'name_or_path', None) or type(model).__name__}, {MEMORY}"
    loaded.attributes["pretrained"] = name
    if not loaded.reads_text:
        raise UserError(
            f"model {loaded.class_name} reads {loaded.base.main_input_name}, not text; pass a text "
            "model"
        )
    return loaded, tokenizer


def measure_windows(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig, everything: bool
) -> xr.Dataset:
    """Cut the text into windows and measure them; warn where the model does not know the text.

    `everything` leaves out the families that cannot be measured.
    """
    if everything:
        measurable = measurable_families(loaded, config.measure.families)
        config = replace(config, {"measure.families": measurable})
    windows = make_windows(
        text.content,
        tokenizer,
        config.window,
        config.special_tokens,
        config.measure,
        tokens_per_position(loaded.adapter, loaded.model.config),
        "the text",
    )
    plan = Plan(config, config.measure, windows, text, config.pretrained.name, printed=False)
    table = measure_alone(plan, loaded)
    bits, bound = table.attrs["bits_per_byte"], table.attrs["bits_bound"]
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits per byte of this text, token frequencies alone need "
            f"{bound:.2f}; check its tokenizer and weights, or whether it was trained on such text",
            stacklevel=5,
        )
    return table


def measurable_families(loaded: PretrainedModel, families: tuple[str, ...]) -> tuple[str, ...]:
    """Return the families that can be measured on this model."""
    config = loaded.model.config
    reasons = unmeasurable_families(loaded.adapter, adapter_name(config), loaded.class_name)
    if getattr(config, "is_causal", True) is False:
        reasons[logits.FAMILY] = "it sees the token that it is to predict"
    return tuple(family for family in families if family not in reasons)


def check_frames(tokenizer: Any, parts: list[str]) -> None:
    """Refuse texts that already begin with the special token of the tokenizer."""
    first = tokenizer.convert_ids_to_tokens(special_frame(tokenizer)[0][:1])
    for number, part in enumerate(parts):
        if first and part.lstrip().startswith(first[0]):
            raise UserError(
                f"texts: number {number} begins with {first[0]}, which special_tokens=True adds; "
                "remove it from the text"
            )


def measure_alone(plan: Plan, loaded: PretrainedModel) -> xr.Dataset:
    """Measure a model without steps and without comparisons of revisions."""
    check_model(plan, loaded)
    raw, measure = measure_revision(plan, loaded, ALONE, last=True), plan.measure
    del raw.attrs["config"]  # it names a text that was not read
    raw.attrs |= {"seed": measure.seed, "window": plan.config.window, "anisoscope": __version__}
    raw.attrs["bits_bound"] = guards.bits_bound(plan.windows)
    table, _ = join.joined({ALONE: raw}, measure.families, measure.nulls)
    join.mark_noise(table, json.loads(raw.attrs[join.NOISE]))
    others = tuple(f"{index}_{name}" for index in KINDS for name in COMPARED)
    table = table.drop_vars([name for name in table if name.startswith(others)])
    return table.isel(step=0).drop_vars("step")
