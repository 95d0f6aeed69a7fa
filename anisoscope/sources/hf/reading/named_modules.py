"""Hook points that somebody names: outputs of modules, caught while a model of any kind reads
tokens.

Letters: Z inputs of W windows.
"""

import contextlib
import inspect
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import transformers

from anisoscope.sources.hf.hooked import output_tensor
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import LayerArrays, forward
from anisoscope.sources.hf.reading.guards import position_table
from anisoscope.utils.errors import UserError


class FunctionTokenizer:
    """A function from a text to token ids, asked as tokenizers of transformers are; it knows no
    special tokens.
    """

    all_special_ids = ()

    def __init__(self, function: Any):
        self.function = function

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        ids = self.function(text)
        ids = ids["input_ids"] if isinstance(ids, Mapping) else getattr(ids, "ids", ids)
        ids_T = np.asarray(ids)
        ids_T = ids_T[0] if ids_T.ndim == 2 and len(ids_T) == 1 else ids_T
        if ids_T.ndim != 1 or (ids_T.size and ids_T.dtype.kind not in "iu"):
            raise UserError(
                f"tokenizer gives {ids_T.dtype} of shape {ids_T.shape} for a text; "
                "token ids, or a dict with input_ids, are needed"
            )
        return {"input_ids": ids_T.tolist()}

    def __getattr__(self, name: str) -> None:
        if not name.endswith("_token_id"):
            raise AttributeError(name)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(one) for one in ids]


@contextlib.contextmanager
def catch_outputs(modules: dict[str, torch.nn.Module]) -> Iterator[dict[str, torch.Tensor]]:
    """A dict that holds the output of each module once it has run; UserError where one runs twice,
    or never.
    """
    made: dict[str, torch.Tensor] = {}

    def hook(name: str) -> Any:
        def after(_: Any, args: tuple, output: Any) -> None:
            if name in made:
                raise UserError(
                    f"hook point {name} runs more than once in a pass; name modules that run once"
                )
            made[name] = output_tensor(name, output)

        return after

    with contextlib.ExitStack() as hooks:
        for name, module in modules.items():
            hooks.enter_context(module.register_forward_hook(hook(name)))
        yield made
    for name in modules:
        if name not in made:
            raise UserError(
                f"hook point {name} does not run when the model reads tokens; leave it out"
            )


def read_modules(
    loaded: PretrainedModel,
    modules: dict[str, torch.nn.Module],
    ids_BT: np.ndarray,
    mask_BT: np.ndarray | None = None,
) -> list[torch.Tensor]:
    """What every module gives of a batch, in their order: (B, T, D), or (B, D) of a vector for each
    row.
    """
    with catch_outputs(modules) as made:
        if isinstance(loaded.model, transformers.PreTrainedModel):
            forward(loaded, ids_BT, loaded.model, **padding_arguments(loaded, mask_BT))
        else:
            _call(loaded.model, ids_BT, mask_BT)
    rows, tokens = ids_BT.shape
    outputs = []
    for name in modules:
        x = made[name]
        if x.ndim == 2 and len(x) == rows * tokens != rows:
            x = x.reshape(rows, tokens, -1)
        if x.shape[: x.ndim - 1] not in ((rows, tokens), (rows,)):
            wanted = f"({rows} rows, {tokens} tokens, width) or ({rows} rows, width)"
            raise UserError(
                f"hook point {name} gives vectors of shape {tuple(x.shape)}; {wanted} is needed"
            )
        outputs.append(x)
    return outputs


def padding_arguments(
    loaded: PretrainedModel, mask_BT: np.ndarray | None
) -> dict[str, torch.Tensor]:
    """What a model of transformers is told of padding: where it is, and positions that count from
    the first token.
    """
    if mask_BT is None:
        return {}
    given = {
        "attention_mask": torch.as_tensor(mask_BT, dtype=torch.long, device=loaded.base.device)
    }
    named = inspect.signature(loaded.base.forward).parameters
    # that counts by itself, from what is no padding
    own = position_table(loaded.base) is not None
    if "position_ids" in named and not own and not mask_BT[:, 0].all():
        given["position_ids"] = (given["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return given


def _call(model: torch.nn.Module, ids_BT: np.ndarray, mask_BT: np.ndarray | None) -> None:
    """A module of any kind: tokens by name or first, and the mask where it takes one."""
    device = next((x.device for x in model.parameters()), torch.device("cpu"))
    ids = torch.as_tensor(np.ascontiguousarray(ids_BT), dtype=torch.long, device=device)
    named = inspect.signature(model.forward).parameters
    given = {}
    if "attention_mask" in named:
        mask = (
            torch.ones_like(ids)
            if mask_BT is None
            else torch.as_tensor(mask_BT, dtype=torch.long, device=device)
        )
        given["attention_mask"] = mask
    try:
        model(input_ids=ids, **given) if "input_ids" in named else model(ids, **given)
    except UserError:
        raise
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        words = f"{type(model).__name__} cannot read token ids of shape {ids_BT.shape}, up to {ids_BT.max()}"
        raise UserError(f"{words} ({first})") from error


def read_windows(
    loaded: PretrainedModel,
    tokens_ZWT: np.ndarray,
    batch_size: int,
    modules: dict[str, torch.nn.Module],
) -> np.ndarray:
    """(Z, N, W, T, D) of Z inputs, in float32: of N modules. UserError where one gives a vector for
    a whole window.
    """
    inputs, windows = tokens_ZWT.shape[:2]
    caught = LayerArrays(loaded, inputs, windows)
    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        place = z, slice(start, start + batch_size)
        for n, (name, x) in enumerate(
            zip(modules, read_modules(loaded, modules, tokens_ZWT[place]), strict=True)
        ):
            if x.ndim == 2:
                raise UserError(
                    f"hook point {name} gives one vector for a window; pass padding= to read separate texts"
                )
            if (wanted := caught.made.get("hook points", x).shape[-1]) != x.shape[-1]:
                raise UserError(
                    f"hook point {name} has width {x.shape[-1]}, {next(iter(modules))} has {wanted}; measure those of "
                    "one width together"
                )
            caught.put("hook points", n, len(modules), place, x)
    return caught.made["hook points"]
