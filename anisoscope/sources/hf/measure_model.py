"""Measure a model from a user's code as the command does, without writing a folder."""

import contextlib
import json
import numbers
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import CLOUD_NULLS, EVERY_LAYER
from anisoscope.config.pretrained_config import (
    REVISIONS,
    SINGLE_STEP,
    PretrainedConfig,
    WeightsConfig,
    check_pretrained,
    revision_steps,
)
from anisoscope.results import join
from anisoscope.results.missing_names import as_table
from anisoscope.sources import array_checks
from anisoscope.sources.hf import guards, load_model, separate_texts, token_windows
from anisoscope.sources.hf.input_texts import Text, read_texts
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.memory_model import MEMORY, evaluation_mode, model_in_memory
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.revision import (
    Plan,
    check_distinct,
    check_revision,
    measure_revision,
    unmeasurable_families,
)
from anisoscope.sources.hf.token_windows import cut_token_windows
from anisoscope.utils.errors import SettingError, UserError
from anisoscope.utils.progress import report_stage
from anisoscope.utils.settings import check_unique, choose, replace

MODEL_NULLS = (*CLOUD_NULLS, "shuffled")
ARGUMENTS = {REVISIONS: "revision"}  # others have the last part of the setting's name


def measure_loaded(
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
    by one.
    """
    pools = (pool,) if isinstance(pool, str) else tuple(pool)
    everything, separate = "all" in (families, *families), bool(padding or pools)
    with as_arguments(), load_model.quiet():
        choose("padding", padding or "left", ("left", "right"))
        text, config = read_texts(texts), join_settings(families, nulls, separate, pools, settings)

        if not separate:
            token_windows.check_length(text.size, config)

        def measure(name: str | None) -> xr.Dataset:
            with report_stage("measure_model: loading the model"):
                loaded, own_tokenizer = open_model(model, name, tokenizer, config)
            if config.special_tokens:
                token_windows.check_frames(own_tokenizer, text.parts)
            with evaluation_mode(loaded):
                if separate:
                    return separate_texts.measure_texts(loaded, own_tokenizer, text, config, pools)
                return measure_text(loaded, own_tokenizer, text, config, everything, name)

        if revision is None or isinstance(revision, str):
            return as_table(measure(revision))
        if not revision:
            raise UserError("revision is empty; pass one name or several, or leave it out")
        revisions = revision_steps(WeightsConfig(revisions=tuple(revision)))
        tables = [measure(name) for name in revisions.values()]
        digests = (table.attrs["weights_sha256"] for table in tables)
        check_distinct(dict(zip(revisions, digests, strict=True)))
    read = ("windows", "first_tokens", "tokens_per_byte")
    if len({tuple(str(table.attrs.get(name)) for name in read) for table in tables}) > 1:
        raise ValueError("revision: tokenizers and windows differ; measure revisions one by one")
    steps = xr.DataArray(list(revisions), dims="step", name="step")
    table = xr.concat(tables, steps, join="exact", combine_attrs="drop_conflicts")
    return as_table(table.assign_coords(revision=("step", list(revisions.values()))))


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """Raise a UserError as a ValueError that calls settings of the command as arguments are."""
    try:
        yield
    except SettingError as error:
        message = str(error)
        for name in error.names:
            message = message.replace(name, ARGUMENTS.get(name, name.rpartition(".")[2]))
        raise ValueError(message) from error
    except UserError as error:
        raise ValueError(str(error)) from error


def join_settings(
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    separate: bool,
    pools: tuple[str, ...],
    settings: dict[str, Any],
) -> PretrainedConfig:
    """Check families, null models and pools, and join them with the settings."""
    for pool in pools:
        choose("pool", pool, separate_texts.POOLS)
    check_unique("pool", pools)
    if "cls" in pools and not settings["special_tokens"]:
        raise UserError("pool=cls: pass special_tokens=True, which puts that token before a text")
    inputs, source, allowed = array_checks.VECTOR_INPUTS, "separate texts", CLOUD_NULLS
    if not separate:
        inputs, source = (*inputs, *array_checks.HEAD_INPUTS, array_checks.LENS_FAMILY), "a model"
        allowed = MODEL_NULLS
    everything = "all" in (families, *families)
    families = array_checks.choose_families(families, inputs, source=source)
    if layers := layer_numbers(settings["layers"]):
        dependents = [name for name in families if name in EVERY_LAYER]
        if dependents and not everything:
            what = f"families: {dependents[0]} reads {EVERY_LAYER[dependents[0]]} too"
            raise UserError(f"{what}; leave it out, or layers")
        families = tuple(name for name in families if name not in dependents)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    for null in nulls:
        if null not in allowed:
            choices = f"choose from {', '.join(allowed)}"
            raise UserError(f"nulls: {null!r} cannot be made of {source}; {choices}")
    if settings["measure.batches"] is None:
        settings = settings | {"measure.batches": 1 if separate else 2}
    # a warning in place of the command's refusal
    settings = settings | {"pretrained.max_bits_per_byte": sys.float_info.max}
    settings |= {"measure.families": families, "measure.nulls": nulls, "layers": layers}
    return replace(PretrainedConfig(), settings)


def layer_numbers(layers: Any) -> tuple[int, ...]:
    """Return the numbers of layers; empty: all."""
    if layers is None:
        return ()
    listed = isinstance(layers, Sequence | np.ndarray) and not isinstance(layers, str)
    whole = listed and all(
        isinstance(x, numbers.Integral) and not isinstance(x, bool) for x in layers
    )
    if not whole or not len(layers):
        raise UserError(f"layers is {layers!r}; pass a list of whole numbers, such as [0, -1]")
    return tuple(map(int, layers))


def open_model(
    model: Any, revision: str | None, tokenizer: Any, config: PretrainedConfig
) -> tuple[PretrainedModel, Any]:
    """Return the model and its tokenizer, loading both where a name or a path is passed."""
    if isinstance(model, tuple):
        if len(model) != 2:
            raise UserError(f"model is a tuple of {len(model)}; pass (model, tokenizer)")
        if tokenizer is not None:
            raise UserError("model is (model, tokenizer); leave tokenizer= out")
        model, tokenizer = model
    by_name = isinstance(model, str | os.PathLike)
    name = os.fspath(model) if by_name else MEMORY
    if not name:
        raise UserError("model is an empty name; pass a name of a hub, a folder or a .gguf file")
    check_pretrained(replace(config, {"pretrained.name": name}))
    if by_name:
        location = find_weights(name, revision)
        tokenizer = load_model.read_tokenizer(location) if tokenizer is None else tokenizer
        loaded = load_model.load_model(location, config.pretrained)
    elif revision is not None:
        raise UserError("revision is for a hub name or a local folder, but the model is in memory")
    elif config.pretrained.device_map is not None:
        raise UserError("device is for a hub name or a local folder; a model in memory has its own")
    else:
        loaded = model_in_memory(model, tokenizer)
        name = f"{getattr(model, 'name_or_path', None) or type(model).__name__}, {MEMORY}"
    loaded.attributes["pretrained"] = name
    if not loaded.reads_text:
        what = f"model {loaded.class_name} reads {loaded.base.main_input_name}, not text"
        raise UserError(f"{what}; pass a text model")
    return loaded, tokenizer


def measure_text(
    loaded: PretrainedModel,
    tokenizer: Any,
    text: Text,
    config: PretrainedConfig,
    everything: bool,
    revision: str | None,
) -> xr.Dataset:
    """Cut the text into windows and measure them; warn where the model does not know the text.

    `everything` leaves out the families that cannot be measured.
    """
    changes = {"pretrained.name": loaded.attributes["pretrained"]}
    if everything:
        reasons = unmeasurable_families(loaded.model.config, loaded.class_name, config.layers)
        families = tuple(name for name in config.measure.families if name not in reasons)
        changes["measure.families"] = families
    config = replace(config, changes)
    measure, joined = config.measure, load_model.tokens_per_position(loaded.model.config)
    guards.check_window(loaded, config.window)
    with report_stage("measure_model: reading the text"):
        tokens = token_windows.needed_tokens(config, joined)
        length = token_windows.CHARACTERS_PER_TOKEN * config.window
        pieces = text.draw(token_windows.CHARACTERS_PER_TOKEN * tokens, length, measure.seed)
        windows = cut_token_windows(pieces, tokenizer, config, joined, "the text")
    if len(pieces) < text.size:
        share = f"{len(pieces):,} of {text.size:,} characters, in pieces from random places"
        windows = windows._replace(attributes=windows.attributes | {"text_read": share})
    plan = Plan(config, measure, windows, text, config.pretrained.name, printed=False)
    check_revision(plan, loaded)
    raw = measure_revision(plan, loaded, SINGLE_STEP, last=True)
    del raw.attrs["config"]  # it names a text that was not read
    bits, bound = raw.attrs["bits_per_byte"], guards.bits_bound(windows)
    raw.attrs |= {"seed": measure.seed, "window": config.window, "anisoscope": __version__}
    raw.attrs["bits_bound"] = bound
    table, _ = join.join_steps({SINGLE_STEP: raw}, measure.families, measure.nulls)
    join.mark_noise(table, json.loads(raw.attrs[join.NOISE_FLOOR]))
    if not isinstance(bits, str) and not bits < bound:
        who = "the model" if revision is None else f"revision {revision}"
        warnings.warn(
            f"{who} needs {bits:.2f} bits per byte of this text, token frequencies alone need "
            f"{bound:.2f}; check its tokenizer and weights, or whether it was trained on such text",
            stacklevel=5,
        )
    return table.isel(step=0).drop_vars("step")
