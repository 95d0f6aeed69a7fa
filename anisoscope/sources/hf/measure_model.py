"""Measure a model from a user's code as the command does, without writing a folder."""

import contextlib
import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers
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
from anisoscope.results import join
from anisoscope.sources import array_checks
from anisoscope.sources.hf import guards, load_model, logits, separate_texts
from anisoscope.sources.hf.adapters import adapter_name, find_adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.revision import (
    Plan,
    check_distinct,
    check_revision,
    measure_revision,
    unmeasurable_families,
)
from anisoscope.sources.hf.token_windows import Text, cut_token_windows, read_texts, special_frame
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose, once, replace

NULLS = (*CLOUD_NULLS, "shuffled")
MEMORY = "in memory"
EVALUATION = {
    "use_cache": False,
    "return_dict": True,
    "output_attentions": False,
    "output_hidden_states": False,
}


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

        def measure(name: str | None) -> xr.Dataset:
            loaded, own_tokenizer = open_model(model, name, tokenizer, config)
            if config.special_tokens:
                check_frames(own_tokenizer, text.parts)
            with evaluation_mode(loaded):
                if separate:
                    return separate_texts.measure_texts(loaded, own_tokenizer, text, config, pools)
                return measure_text(loaded, own_tokenizer, text, config, everything)

        if revision is None or isinstance(revision, str):
            return measure(revision)
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
    return table.assign_coords(revision=("step", list(revisions.values())))


@contextlib.contextmanager
def as_arguments() -> Iterator[None]:
    """Raise a UserError, which names settings of the command, as a ValueError about arguments."""
    try:
        yield
    except UserError as error:
        names = r"^--similarity: |(--config\.)?\b(measure|pretrained)\.(?!py\b)"
        raise ValueError(re.sub(names, "", str(error))) from error


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
    once("pool", pools)
    if "cls" in pools and not settings["special_tokens"]:
        raise UserError("pool=cls: pass special_tokens=True, which puts that token before a text")
    inputs, source, allowed = array_checks.VECTOR_INPUTS, "separate texts", CLOUD_NULLS
    if not separate:
        inputs, source = (*inputs, *array_checks.HEAD_INPUTS, logits.FAMILY), "a model"
        allowed = NULLS
    families = array_checks.choose_families(families, inputs, source=source)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    for null in nulls:
        if null not in allowed:
            choices = f"choose from {', '.join(allowed)}"
            raise UserError(f"nulls: {null!r} cannot be made of {source}; {choices}")
    if settings["measure.batches"] is None:
        settings = settings | {"measure.batches": 1 if separate else 2}
    # a warning in place of the command's refusal
    settings = settings | {"pretrained.max_bits_per_byte": sys.float_info.max}
    settings |= {"measure.families": families, "measure.nulls": nulls}
    return replace(PretrainedConfig(), settings)


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
        loaded = load_model.load_model(location, config.pretrained)
        tokenizer = load_model.read_tokenizer(location) if tokenizer is None else tokenizer
    elif revision is not None:
        raise UserError("revision is for a hub name or a local folder, but the model is in memory")
    else:
        loaded = model_in_memory(model, tokenizer)
        name = f"{getattr(model, 'name_or_path', None) or type(model).__name__}, {MEMORY}"
    loaded.attributes["pretrained"] = name
    if not loaded.reads_text:
        what = f"model {loaded.class_name} reads {loaded.base.main_input_name}, not text"
        raise UserError(f"{what}; pass a text model")
    return loaded, tokenizer


def model_in_memory(model: Any, tokenizer: Any) -> PretrainedModel:
    """Describe a model in memory; UserError where it cannot be measured as it is."""
    name = type(model).__name__
    if not isinstance(model, transformers.PreTrainedModel):
        advice = "or record the activations of any other module with anisoscope.record"
        raise UserError(f"model is a {name}; pass a PreTrainedModel of transformers, {advice}")
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        what = f"model is a {name} in memory"
        raise UserError(f"{what}; pass its tokenizer of transformers, as (model, tokenizer)")
    adapter = find_adapter(adapter_name(model.config))
    if adapter.model_class not in (None, name):
        raise UserError(f"model is a {name}; pass a {adapter.model_class}, which reads its text")
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    if (computed_in := _type_name(dtype)) not in guards.CLOSE:
        choices = " or ".join(guards.CLOSE)
        raise UserError(f"{name} computes in {computed_in}; convert it to {choices}")
    load_model.check_finite_weight(name, model)
    if any(path.endswith("inv_freq") and x.itemsize < 4 for path, x in model.named_buffers()):
        what = f"{name}: rotary frequencies are rounded to {computed_in}, as by .to()"
        warnings.warn(f"{what}: load the model with dtype= instead", stacklevel=2)
    weights = model.state_dict()
    attributes = {
        "weights_sha256": digest_state(weights),
        "weights_file": MEMORY,
        "weights_type": ", ".join(sorted({_type_name(x.dtype) for x in weights.values()})),
        "computed_in": computed_in,
        "revision": MEMORY,
    }
    return PretrainedModel(model, adapter, load_model.library_versions(model) | attributes)


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def digest_state(weights: dict[str, Any]) -> str:
    """Return the sha256 of names, types, shapes and numbers of a state dict."""
    digest = hashlib.sha256()
    for name, x in sorted(weights.items()):
        if x.device.type == "meta":
            return "not known: weights are offloaded"
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@contextlib.contextmanager
def evaluation_mode(loaded: PretrainedModel) -> Iterator[None]:
    """Set a model to read windows, without dropout, cache or gradients; restore it at the end.

    All attributes of modules and settings are restored, and hooks that the library leaves are
    removed.
    """
    model, before = loaded.model, []
    configs = {id(x.config): x.config for x in model.modules() if hasattr(x, "config")}
    for attributes in map(vars, (*model.modules(), *configs.values())):
        dicts = {name: dict(x) for name, x in attributes.items() if isinstance(x, dict)}
        before.append((attributes, dict(attributes), dicts))
    try:
        model.eval()
        for name, value in EVALUATION.items():
            setattr(model.config, name, value)
        if implementation := load_model.attention_implementation(loaded.adapter):
            model.set_attn_implementation(implementation)
        with torch.no_grad():
            yield
    finally:
        for attributes, values, dicts in before:
            attributes.clear()
            attributes.update(values)
            # keep the dict objects: the code that registered a hook removes it from them
            for name, entries in dicts.items():
                attributes[name].clear()
                attributes[name].update(entries)


def measure_text(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig, everything: bool
) -> xr.Dataset:
    """Cut the text into windows and measure them; warn where the model does not know the text.

    `everything` leaves out the families that cannot be measured.
    """
    changes = {"pretrained.name": loaded.attributes["pretrained"]}
    if everything:
        reasons = unmeasurable_families(loaded.model.config, loaded.class_name)
        families = tuple(name for name in config.measure.families if name not in reasons)
        changes["measure.families"] = families
    config = replace(config, changes)
    measure, joined = config.measure, load_model.tokens_per_position(loaded.model.config)
    windows = cut_token_windows(text.content, tokenizer, config, joined, "the text")
    plan = Plan(config, measure, windows, text, config.pretrained.name, printed=False)
    check_revision(plan, loaded)
    raw = measure_revision(plan, loaded, ALONE, last=True)
    del raw.attrs["config"]  # it names a text that was not read
    bits, bound = raw.attrs["bits_per_byte"], guards.bits_bound(windows)
    raw.attrs |= {"seed": measure.seed, "window": config.window, "anisoscope": __version__}
    raw.attrs["bits_bound"] = bound
    table, _ = join.join_steps({ALONE: raw}, measure.families, measure.nulls)
    join.mark_noise(table, json.loads(raw.attrs[join.NOISE]))
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits per byte of this text, token frequencies alone need "
            f"{bound:.2f}; check its tokenizer and weights, or whether it was trained on such text",
            stacklevel=5,
        )
    return table.isel(step=0).drop_vars("step")


def check_frames(tokenizer: Any, parts: list[str]) -> None:
    """Refuse texts that already begin with the special token of the tokenizer."""
    first = tokenizer.convert_ids_to_tokens(special_frame(tokenizer)[0][:1])
    for number, part in enumerate(parts):
        if first and part.lstrip().startswith(first[0]):
            why = f"begins with {first[0]}, which special_tokens=True adds"
            raise UserError(f"texts: number {number} {why}; remove it from the text")
