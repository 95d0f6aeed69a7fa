"""Measure one model from a user's code as the command does, without writing a folder.

Letters: Z inputs of a batch: its windows, and shuffled ones.
"""

import contextlib
import dataclasses
import json
import math
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import transformers
import xarray as xr

from anisoscope import __version__
from anisoscope.config.measure_config import CLOUD_NULLS, MeasureConfig
from anisoscope.config.pretrained_config import (
    ALONE,
    PretrainedConfig,
    WeightsConfig,
    revision_steps,
)
from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.results import join
from anisoscope.sources import array_checks
from anisoscope.sources.hf import load_model, separate_texts
from anisoscope.sources.hf.adapters import model_kind
from anisoscope.sources.hf.borrowed_model import evaluation_mode, open_model
from anisoscope.sources.hf.hooked import find_modules
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading import guards, logits
from anisoscope.sources.hf.reading.named_modules import Modules, read_windows
from anisoscope.sources.hf.reading.token_windows import make_windows, special_frame
from anisoscope.sources.hf.reading_plan import Plan, unmeasurable
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

NULLS = (*CLOUD_NULLS, "shuffled")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of `anisoscope.measure_model` that describe how a text is read."""

    window: int
    points: int
    batches: int | None
    special_tokens: bool
    dtype: str
    batch_size: int
    padding: str | None
    pool: str | Sequence[str]

    @property
    def pools(self) -> tuple[str, ...]:
        return (self.pool,) if isinstance(self.pool, str) else tuple(self.pool)

    @property
    def separate(self) -> bool:
        """Whether texts are read one by one, in padded batches."""
        return bool(self.padding or self.pools)


def measure_model(
    model: Any,
    texts: Any,
    revision: str | Sequence[str] | None,
    tokenizer: Any,
    hook_points: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
    options: Options,
) -> xr.Dataset:
    """Measure a model, or each of several revisions, as `anisoscope.measure_model` documents."""
    arguments = tokenizer, hook_points, families, nulls, seed, options
    with as_arguments():
        if revision is None or isinstance(revision, str):
            return measure_revision(model, texts, revision, *arguments)
        if not (names := tuple(revision)):
            raise UserError("revision is empty; pass one name or several, or leave it out")
        revisions = revision_steps(WeightsConfig(revisions=names))
        if isinstance(texts, Iterator):
            texts = [*texts]  # an iterator can be read only once
        tables = [measure_revision(model, texts, name, *arguments) for name in revisions.values()]
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
        words = re.sub(r"(--config\.)?\b(measure|pretrained)\.(?!py\b)", "", str(error))
        raise ValueError(words) from error


def measure_revision(
    model: Any,
    texts: Any,
    revision: str | None,
    tokenizer: Any,
    hook_points: Any,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
    options: Options,
) -> xr.Dataset:
    """Measure one model."""
    config = make_config(options, families, nulls, seed, hook_points is not None)
    with load_model.quiet():
        loaded, tokenizer = open_model(model, revision, tokenizer, config, hook_points is not None)
        modules = None if hook_points is None else find_modules(loaded.model, hook_points)
        text, parts = read_texts(texts)
        if options.special_tokens:
            check_frames(tokenizer, parts)
        with evaluation_mode(loaded):
            if options.separate:
                return separate_texts.measure_texts(
                    loaded, tokenizer, text, parts, modules, config, options
                )
            config = replace(config, {"pretrained.name": loaded.about["pretrained"]})
            if modules is not None:
                return measure_modules(
                    loaded, make_plan(loaded, tokenizer, text, config), text, modules
                )
            if "all" in (families, *families):
                measurable = measurable_families(loaded, config.measure.families)
                config = replace(config, {"measure.families": measurable})
            plan = make_plan(loaded, tokenizer, text, config)
            table = measure_alone(loaded, plan, text)
    bits, bound = table.attrs["bits_per_byte"], table.attrs["bits_bound"]
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits per byte of this text, token frequencies alone need "
            f"{bound:.2f}; check its tokenizer and weights, or whether it was trained on such text",
            stacklevel=4,
        )
    return table


def make_config(
    options: Options,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
    hook_points: bool,
) -> PretrainedConfig:
    """Translate the arguments into settings of the command.

    Raises:
        UserError: families, null models, pools or padding are not available.
    """
    separate = options.separate
    for pool in options.pools:
        choose("pool", pool, separate_texts.POOLS)
    once("pool", options.pools)
    if options.padding is not None:
        choose("padding", options.padding, separate_texts.SIDES)
    if "cls" in options.pools and not options.special_tokens:
        raise UserError(
            "pool=cls: pass special_tokens=True, which puts that token before each text"
        )
    kinds, source = array_checks.VECTOR_INPUTS, "hook points and separate texts"
    if not hook_points and not separate:
        kinds, source = (*kinds, *array_checks.HEAD_INPUTS, logits.FAMILY), "a model"
    families = array_checks.choose_families(families, kinds, source=source)
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    allowed = CLOUD_NULLS if separate else NULLS
    for null in nulls:
        if null not in allowed:
            source = "separate texts" if null in NULLS else "a lone model"
            raise UserError(
                f"nulls: {null!r} cannot be made of {source}; choose from {', '.join(allowed)}"
            )
    batches = options.batches if options.batches is not None else 1 if separate else 2
    settings = {
        "window": options.window,
        "special_tokens": options.special_tokens,
        "pretrained.dtype": str(options.dtype).removeprefix("torch."),
        "pretrained.batch_size": options.batch_size,
        "pretrained.max_bits_per_byte": math.inf,  # a warning here, where the command refuses
        "measure.points": options.points,
        "measure.batches": batches,
        "measure.seed": seed,
        "measure.families": families,
        "measure.nulls": nulls,
    }
    return replace(PretrainedConfig(), settings)


def measurable_families(loaded: PretrainedModel, families: tuple[str, ...]) -> tuple[str, ...]:
    """Return the families that can be measured on this model."""
    config, name = loaded.model.config, type(loaded.model).__name__
    missing = {*unmeasurable(loaded.adapter, model_kind(config), name)}
    if getattr(config, "is_causal", True) is False:  # it sees the token that it is to predict
        missing.add(logits.FAMILY)
    return tuple(family for family in families if family not in missing)


def check_frames(tokenizer: Any, parts: list[str]) -> None:
    """Refuse texts that already begin with the special token of the tokenizer."""
    first = tokenizer.convert_ids_to_tokens(special_frame(tokenizer)[0][:1])
    for number, part in enumerate(parts):
        if first and part.lstrip().startswith(first[0]):
            raise UserError(
                f"texts: number {number} begins with {first[0]}, which special_tokens=True adds; "
                "remove it from the text"
            )


def make_plan(
    loaded: PretrainedModel, tokenizer: Any, text: Text, config: PretrainedConfig
) -> Plan:
    """Cut windows of a text, as the command does."""
    rate = loaded.adapter.rate
    rate = getattr(loaded.model.config, rate) if rate else 1
    special, measure = config.special_tokens, config.measure
    windows = make_windows(
        text.content, tokenizer, config.window, special, measure, rate, "the text"
    )
    return Plan(config, windows, "", bar="measure_model")


def describe_plan(plan: Plan, text: Text) -> dict[str, Any]:
    """Describe text, windows and settings, for tables."""
    config = plan.config
    about = attributes(config, text, plan.windows, config.pretrained.name)
    del about["config"]  # it names a text that was not read
    return about | {"seed": config.measure.seed, "window": config.window, "anisoscope": __version__}


def measure_alone(loaded: PretrainedModel, plan: Plan, text: Text) -> xr.Dataset:
    """Measure a model as the command does, without comparisons of revisions."""
    alone = Residuals(pathlib.Path(), [ALONE], compare=False, read=lambda step: [])
    about = describe_plan(plan, text)
    raw = measure_stream(plan, check_model(plan, loaded), ALONE, True, alone, about)
    raw.attrs["bits_bound"] = guards.bits_bound(plan.windows)
    return join_step(raw, plan.config.measure)


def join_step(raw: xr.Dataset, measure: MeasureConfig) -> xr.Dataset:
    """Return the table of a step, without the step axis and comparisons of revisions."""
    results, _ = join.joined({ALONE: raw}, measure.families, measure.nulls)
    join.mark_noise(results, json.loads(raw.attrs[join.NOISE]))
    others = tuple(f"{kind}_{name}" for kind in KINDS for name in COMPARED)
    results = results.drop_vars([name for name in results if name.startswith(others)])
    return results.isel(step=0).drop_vars("step")


def measure_modules(
    loaded: PretrainedModel, plan: Plan, text: Text, modules: Modules
) -> xr.Dataset:
    """Measure outputs of named modules at the same windows and points."""
    if isinstance(loaded.model, transformers.PreTrainedModel):
        guards.check_vocabulary(loaded, plan.windows)
        guards.check_window(loaded, plan.config.window, 0)
    names = {"hook_points": ", ".join(modules), "layer_0": "a hook point, as the others"}
    about = as_attributes(loaded.about | describe_plan(plan, text) | names)

    def read(inputs_ZWT: np.ndarray, size: int, plain: bool) -> np.ndarray:
        return read_windows(loaded, inputs_ZWT, size, modules)

    table = join_step(measure_clouds(plan, read, ALONE, True, about), plan.config.measure)
    layers = [dim for dim in ("layer", "other_layer") if dim in table.dims]
    return table.assign_coords({dim: [*modules] for dim in layers})
