"""One pretrained model in one's own code, by name or in memory: measured as the command does it, without a folder."""

import contextlib
import hashlib
import json
import math
import os
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import transformers
import xarray as xr

from anisoscope import __version__
from anisoscope.config import pretrained
from anisoscope.config.pretrained import ALONE, PretrainedConfig
from anisoscope.measurement.families.comparison import KINDS
from anisoscope.measurement.sources import validate
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.adapters import UNKNOWN, adapter_of, kind_of
from anisoscope.measurement.sources.hub.load import Loaded
from anisoscope.measurement.sources.hub.plan import OF_HEADS, Plan
from anisoscope.measurement.sources.hub.reading import guards
from anisoscope.measurement.sources.hub.reading.windows import make_windows
from anisoscope.measurement.sources.hub.residuals import COMPARED, Residuals
from anisoscope.measurement.sources.hub.revision import guarded, stream
from anisoscope.measurement.sources.hub.revisions import attributes
from anisoscope.measurement.tables import join
from anisoscope.metrics import lapack
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

NULLS = ("gaussian", "shuffled")
MEMORY = "in memory"
READING = {"use_cache": False, "return_dict": True, "output_attentions": False, "output_hidden_states": False}
SHOWN = 40  # characters of what is no path


class Text(NamedTuple):
    """As much of a corpus as tables record."""

    name: str
    content: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()


def of_model(
    model: Any,
    texts: Any,
    tokenizer: Any,
    window: int,
    points: int,
    batches: int,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    special_tokens: bool,
    dtype: str,
    batch_size: int,
    seed: int,
) -> xr.Dataset:
    """`measurement.api.measure_model`."""
    settings = {"window": window, "special_tokens": special_tokens}
    settings |= {"pretrained.dtype": str(dtype).removeprefix("torch."), "pretrained.batch_size": batch_size}
    settings |= {"measure.points": points, "measure.batches": batches, "measure.seed": seed}
    wanted = validate.chosen(families, (*validate.OF_VECTORS, *validate.OF_HEADS), single=False, what="a model")
    nulls = (nulls,) if isinstance(nulls, str) else tuple(nulls or ())
    settings |= {"measure.families": wanted, "measure.nulls": nulls}
    try:
        for null in nulls:
            if null not in NULLS:
                raise UserError(f"nulls: {null!r} cannot be made of a lone model; choose from {', '.join(NULLS)}")
        with load.settled():
            config, text = replace(PretrainedConfig(), settings), text_of(texts)
            loaded, tokenizer = opened(model, tokenizer, config)
            if "all" in (families, *families) and loaded.adapter == UNKNOWN:
                wanted = tuple(family for family in wanted if family not in OF_HEADS)
                config = replace(config, {"measure.families": wanted})
            rows = min(config.measure.points, loaded.model.config.hidden_size)
            with reading(loaded), lapack.threads_for(rows):
                found = measured(loaded, tokenizer, text, config)
    except UserError as error:
        raise ValueError(in_own_words(str(error))) from error
    bits, bound = found.attrs["bits_per_byte"], found.attrs["bits_bound"]
    if not isinstance(bits, str) and not bits < bound:
        warnings.warn(
            f"the model needs {bits:.2f} bits a byte of this text, and the frequencies of the text's tokens need "
            f"{bound:.2f}: it is not trained, or has another tokenizer or other weights, or does not know such a text",
            stacklevel=3,
        )
    return found


def opened(model: Any, tokenizer: Any, config: PretrainedConfig) -> tuple[Loaded, Any]:
    """The model and its tokenizer, fetched where a name or a path is given; UserError where it reads no text."""
    if isinstance(model, tuple):
        if len(model) != 2 or tokenizer is not None:
            raise UserError("model is a tuple; (model, tokenizer) is needed, and no tokenizer beside it")
        model, tokenizer = model
    named = isinstance(model, str | os.PathLike)
    name = os.fspath(model) if named else MEMORY
    pretrained.check_pretrained(replace(config, {"pretrained.name": name}))
    place = load.place_of(name, None) if named else None
    loaded = load.load(place, config.pretrained) if named else of_memory(model, tokenizer)
    loaded.about["pretrained"] = name if named else f"{model.name_or_path or type(model).__name__}, {MEMORY}"
    if not loaded.reads_text:
        raise UserError(f"{type(loaded.model).__name__} reads {loaded.base.main_input_name}, no text")
    return loaded, load.tokenizer_of(place) if tokenizer is None else tokenizer


def of_memory(model: Any, tokenizer: Any) -> Loaded:
    """UserError where it cannot be measured as it is."""
    name = type(model).__name__
    if not isinstance(model, transformers.PreTrainedModel):
        raise UserError(f"model is a {name}; a name, a path, or a PreTrainedModel of transformers is needed")
    if tokenizer is None:
        raise UserError(f"a model in memory ({name}) comes without its tokenizer: pass tokenizer=")
    adapter = adapter_of(kind_of(model.config))
    if adapter.model not in (None, name):
        raise UserError(f"model is a {name}; of its kind {adapter.model} is measured: pass one")
    computed_in = str(model.dtype).removeprefix("torch.")
    if computed_in not in guards.CLOSE:
        raise UserError(f"{name} computes in {computed_in}; one of {', '.join(guards.CLOSE)} is needed")
    load.refuse_not_finite(name, model)
    weights = model.state_dict()
    about = {
        "weights_sha256": digest_of(weights),
        "weights_file": MEMORY,
        "weights_type": ", ".join(sorted({str(x.dtype).removeprefix("torch.") for x in weights.values()})),
        "computed_in": computed_in,
        "revision": MEMORY,
    }
    return Loaded(model, adapter, load.of_libraries(model) | about)


def digest_of(weights: dict[str, Any]) -> str:
    """sha256 of names, types, shapes and numbers, of a state dict; of weights that are elsewhere none."""
    found = hashlib.sha256()
    for name, x in sorted(weights.items()):
        if x.device.type == "meta":
            return "not known: weights are offloaded"
        found.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        found.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


@contextlib.contextmanager
def reading(loaded: Loaded) -> Iterator[None]:
    """The model as it reads windows: no dropout, no cache, no gradients; afterwards it is what it was.

    All that modules and settings hold is put back, also hooks that the library leaves behind.
    """
    things = [*loaded.model.modules(), *_settings(loaded.model)]
    before = [
        (vars(one), dict(vars(one)), {name: dict(x) for name, x in vars(one).items() if isinstance(x, dict)})
        for one in things
    ]
    try:
        loaded.model.eval()
        for name, value in READING.items():
            setattr(loaded.model.config, name, value)
        if way := load.way_of(loaded.adapter):
            loaded.model.set_attn_implementation(way)
        with torch.no_grad():
            yield
    finally:
        for now, own, dicts in before:
            now.clear()
            now.update(own)
            for name, entries in dicts.items():  # the same objects: whoever registered a hook removes it from them
                now[name].clear()
                now[name].update(entries)


def _settings(model: Any) -> list[Any]:
    """Of the model and of all its parts, each once."""
    found: dict[int, Any] = {}
    todo = [module.config for module in model.modules() if hasattr(module, "config")]
    while todo:
        one = todo.pop()
        if isinstance(one, transformers.PreTrainedConfig) and id(one) not in found:
            found[id(one)] = one
            todo += [getattr(one, name, None) for name in one.sub_configs]
    return list(found.values())


def measured(loaded: Loaded, tokenizer: Any, text: Text, config: PretrainedConfig) -> xr.Dataset:
    """The tables of the command for a model alone, without its step and what compares it with others."""
    measure, rate = config.measure, loaded.adapter.rate
    rate = getattr(loaded.model.config, rate) if rate else 1
    windows = make_windows(text.content, tokenizer, config.window, config.special_tokens, measure, rate, "the text")
    config = replace(config, {"pretrained.name": loaded.about["pretrained"], "pretrained.most_bits": math.inf})
    plan = Plan(config, windows, "")
    about = attributes(config, text, windows, config.pretrained.name)
    del about["config"]  # names a text that was not read
    about |= {"seed": measure.seed, "window": config.window, "anisoscope": __version__}
    alone = Residuals(pathlib.Path(), [ALONE], wanted=False, read=lambda step: [])
    raw = stream(plan, guarded(plan, loaded), ALONE, last=True, beside=alone, made=about)
    raw.attrs["bits_bound"] = guards.bound_of(windows)
    results, _ = join.joined({ALONE: raw}, measure.families, measure.nulls)
    join.mark_noise(results, json.loads(raw.attrs[join.NOISE]))
    others = [f"{kind}_{name}" for kind in KINDS for name in COMPARED]
    results = results.drop_vars([name for name in results.data_vars if name.startswith(tuple(others))])
    return results.isel(step=0).drop_vars("step")


def text_of(texts: Any) -> Text:
    """All of a file, or of texts one after another; UserError where there is none."""
    if isinstance(texts, str | os.PathLike):
        if not os.path.isfile(texts):
            said = repr(os.fspath(texts)[:SHOWN])
            raise UserError(f"texts: there is no file {said}; pass a list of texts, or the path of a file")
        path = pathlib.Path(texts)
        try:
            return Text(path.name, path.read_bytes().decode())
        except UnicodeDecodeError as error:
            raise UserError(f"texts: {path} is no UTF-8 ({error.reason} at {error.start}); pass a list") from error
    columns = getattr(texts, "column_names", None)
    if isinstance(texts, Mapping) or (columns is not None and "text" not in columns):
        said = ", ".join(map(str, columns if columns is not None else texts))
        raise UserError(f"texts: there is no column text, but {said[:SHOWN]}; pass a list of texts, or one split")
    if not isinstance(texts, Iterable):
        raise UserError(f"texts is a {type(texts).__name__}; pass a list of texts, or the path of a file")
    parts = list(texts if columns is None else texts["text"])
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            raise UserError(f"texts: number {number} is a {type(part).__name__}, no string")
    return Text(f"{len(parts)} texts", "\n\n".join(parts))


def in_own_words(said: str) -> str:
    """A message of the command, whose settings are arguments here."""
    return re.sub(r"(--config\.)?\b(measure|pretrained)\.(?!py\b)", "", said)
