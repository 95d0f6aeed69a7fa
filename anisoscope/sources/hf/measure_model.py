"""Measure a model from a user's code as the command does, without writing a folder."""

import contextlib
import dataclasses
import json
import math
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
    revision_steps,
)
from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.results import join
from anisoscope.sources import array_checks
from anisoscope.sources.hf import guards, logits, separate_texts
from anisoscope.sources.hf.adapters import adapter_name
from anisoscope.sources.hf.borrowed_model import evaluation_mode, open_model
from anisoscope.sources.hf.load_model import PretrainedModel, quiet, tokens_per_position
from anisoscope.sources.hf.residuals import COMPARED
from anisoscope.sources.hf.revision import (
    Plan,
    check_model,
    measure_revision,
    unmeasurable_families,
)
from anisoscope.sources.hf.texts import Text, read_texts
from anisoscope.sources.hf.token_windows import make_windows, special_frame
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose, once, replace

NULLS = (*CLOUD_NULLS, "shuffled")


@dataclasses.dataclass(frozen=True)
class Options:
    """Arguments of `anisoscope.measure_model` but for the model, its revision and the texts."""

    tokenizer: Any
    families: str | Sequence[str]
    nulls: str | Sequence[str]
    seed: int
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
    model: Any, texts: Any, revision: str | Sequence[str] | None, options: Options
) -> xr.Dataset:
    """Measure a model, or each of several revisions, as `anisoscope.measure_model` documents."""
    with as_arguments(), quiet():
        text, config = read_texts(texts), make_config(options)
        if revision is None or isinstance(revision, str):
            return open_and_measure(model, revision, text, config, options)
        if not revision:
            raise UserError("revision is empty; pass one name or several, or leave it out")
        revisions = revision_steps(WeightsConfig(revisions=tuple(revision)))
        tables = [
            open_and_measure(model, name, text, config, options) for name in revisions.values()
        ]
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


def make_config(options: Options) -> PretrainedConfig:
    """Translate the options into settings of the command."""
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
    inputs, source = array_checks.VECTOR_INPUTS, "separate texts"
    if not separate:
        inputs, source = (*inputs, *array_checks.HEAD_INPUTS, logits.FAMILY), "a model"
    families = array_checks.choose_families(options.families, inputs, source=source)
    nulls = (options.nulls,) if isinstance(options.nulls, str) else tuple(options.nulls or ())
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
        "measure.seed": options.seed,
        "measure.families": families,
        "measure.nulls": nulls,
    }
    return replace(PretrainedConfig(), settings)


def open_and_measure(
    model: Any, revision: str | None, text: Text, config: PretrainedConfig, options: Options
) -> xr.Dataset:
    """Measure one model: open it, cut windows of the text, and measure them."""
    loaded, tokenizer = open_model(model, revision, options.tokenizer, config)
    if options.special_tokens:
        check_frames(tokenizer, text.parts)
    config = replace(config, {"pretrained.name": loaded.attributes["pretrained"]})
    with evaluation_mode(loaded):
        if options.separate:
            side = options.padding or "right"
            return separate_texts.measure_texts(
                loaded, tokenizer, text, config, side, options.pools
            )
        if "all" in (options.families, *options.families):
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
        name = config.pretrained.name
        table = measure_alone(
            Plan(config, config.measure, windows, text, name, printed=False), loaded
        )
    bits, bound = table.attrs["bits_per_byte"], table.attrs["bits_bound"]
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits per byte of this text, token frequencies alone need "
            f"{bound:.2f}; check its tokenizer and weights, or whether it was trained on such text",
            stacklevel=4,
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
