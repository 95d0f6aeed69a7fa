"""Read the outputs of modules that a user names, while a model of any kind reads tokens.

Letters: Z inputs of W windows.
"""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import transformers

from anisoscope.sources.hf.hooked import output_tensor
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import LayerArrays, batches, forward
from anisoscope.sources.hf.reading.guards import position_table
from anisoscope.utils.errors import UserError

Modules = dict[str, torch.nn.Module]


class FunctionTokenizer:
    """A function from text to token ids with the interface of a tokenizer; no special tokens."""

    all_special_ids = ()

    def __init__(self, function: Callable[[str], Any]):
        self.function = function

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        ids = self.function(text)
        ids = ids["input_ids"] if isinstance(ids, Mapping) else getattr(ids, "ids", ids)
        ids_T = np.asarray(ids)
        ids_T = ids_T[0] if ids_T.ndim == 2 and len(ids_T) == 1 else ids_T
        if ids_T.ndim != 1 or (ids_T.size and ids_T.dtype.kind not in "iu"):
            raise UserError(
                f"tokenizer returns {ids_T.dtype} of shape {ids_T.shape} for a text; return token ids"
            )
        return {"input_ids": ids_T.tolist()}

    def __getattr__(self, name: str) -> None:
        if not name.endswith("_token_id"):
            raise AttributeError(name)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [str(token) for token in ids]


@contextlib.contextmanager
def catch_outputs(modules: Modules) -> Iterator[dict[str, torch.Tensor]]:
    """Yield a dict that holds the output of each module once it has run.

    Raises:
        UserError: a module runs twice, or never.
    """
    outputs: dict[str, torch.Tensor] = {}
    with contextlib.ExitStack() as hooks:
        for name, module in modules.items():
            hook = functools.partial(_keep_output, outputs, name)
            hooks.enter_context(module.register_forward_hook(hook))
        yield outputs
    for name in modules:
        if name not in outputs:
            raise UserError(
                f"hook point {name} does not run when the model reads tokens; leave it out"
            )


def _keep_output(outputs: dict, name: str, module: Any, args: tuple, output: Any) -> None:
    if name in outputs:
        raise UserError(
            f"hook point {name} runs more than once in a pass; name a module that runs once"
        )
    outputs[name] = output_tensor(name, output)


def read_modules(
    loaded: PretrainedModel, modules: Modules, ids_BT: np.ndarray, mask_BT: np.ndarray | None = None
) -> list[torch.Tensor]:
    """Return the output of every module for a batch: (B, T, D), or (B, D)."""
    with catch_outputs(modules) as outputs:
        if isinstance(loaded.model, transformers.PreTrainedModel):
            forward(loaded, ids_BT, loaded.model, **padding_arguments(loaded, mask_BT))
        else:
            _call_module(loaded.model, ids_BT, mask_BT)
    rows, tokens = ids_BT.shape
    for name, x in outputs.items():
        if x.ndim == 2 and len(x) == rows * tokens != rows:
            outputs[name] = x = x.reshape(rows, tokens, -1)
        if x.shape[:-1] not in ((rows, tokens), (rows,)):
            raise UserError(
                f"hook point {name} returns shape {tuple(x.shape)} for {rows} rows of {tokens} tokens; "
                "name a module that returns (rows, tokens, width)"
            )
    return [outputs[name] for name in modules]


def padding_arguments(
    loaded: PretrainedModel, mask_BT: np.ndarray | None
) -> dict[str, torch.Tensor]:
    """Return the mask of a padded batch, and positions that count from its first token."""
    if mask_BT is None:
        return {}
    mask = torch.as_tensor(mask_BT, dtype=torch.long, device=loaded.base.device)
    arguments = {"attention_mask": mask}
    counts_itself = position_table(loaded.base) is not None  # from the first real token
    takes_positions = "position_ids" in inspect.signature(loaded.base.forward).parameters
    if takes_positions and not counts_itself and not mask_BT[:, 0].all():
        arguments["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return arguments


def _call_module(model: torch.nn.Module, ids_BT: np.ndarray, mask_BT: np.ndarray | None) -> None:
    """Call a module of any kind: tokens by name or first, and the mask where it takes one."""
    device = next((x.device for x in model.parameters()), torch.device("cpu"))
    mask_BT = np.ones(ids_BT.shape) if mask_BT is None else mask_BT
    ids, mask = (
        torch.as_tensor(np.ascontiguousarray(x), dtype=torch.long, device=device)
        for x in (ids_BT, mask_BT)
    )
    parameters = inspect.signature(model.forward).parameters
    more = {"attention_mask": mask} if "attention_mask" in parameters else {}
    try:
        model(input_ids=ids, **more) if "input_ids" in parameters else model(ids, **more)
    except UserError:
        raise
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(
            f"{type(model).__name__} cannot read token ids {ids_BT.shape} up to {ids_BT.max()} "
            f"({reason})"
        ) from error


def read_windows(
    loaded: PretrainedModel, tokens_ZWT: np.ndarray, batch_size: int, modules: Modules
) -> np.ndarray:
    """Read Z inputs of W windows, (Z, module, W, T, D) in float32.

    Raises:
        UserError: a module returns a vector for a whole window, or modules differ in width.
    """
    arrays = LayerArrays(loaded, "hook points", len(modules), tokens_ZWT)
    for batch in batches(tokens_ZWT, batch_size):
        outputs = read_modules(loaded, modules, tokens_ZWT[batch])
        width = outputs[0].shape[-1]
        for n, (name, x) in enumerate(zip(modules, outputs, strict=True)):
            if x.ndim == 2:
                raise UserError(
                    f"hook point {name} returns one vector per window; pass padding= to read texts"
                )
            if x.shape[-1] != width:
                raise UserError(
                    f"hook point {name} has width {x.shape[-1]}, {next(iter(modules))} has {width}; "
                    "measure widths separately"
                )
            arrays.put(batch, n, x)
    return arrays.values
