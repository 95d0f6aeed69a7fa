"""The matrices of a torch model that meet the residual stream, as subspaces/weight_gradients.py has
those of ours.

Rows have the width last. Of each matrix as few are kept as have the same second moments: D at most.

Here O are the rows of a matrix.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers.pytorch_utils import Conv1D

from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.subspaces.weight_gradients import MATRICES, WRITING, Rows

# of each name, block by block, the modules whose rows are taken together
Matrices = dict[str, list[list[Any]]]


def of_blocks(loaded: PretrainedModel) -> Matrices:
    """Those that are there and are as wide as the stream, block by block; one that several blocks
    share is none.
    """
    width, table = loaded.model.config.hidden_size, loaded.base.get_input_embeddings()
    matrices = {"embedding": [[table]] if table.weight.shape[1] == width else []}
    for name in MATRICES[1:]:
        paths = getattr(loaded.adapter.kernels, name, ())
        paths = (paths,) if isinstance(paths, str) else paths
        of_blocks = [
            [block.get_submodule(path) for path in paths] for block in loaded.block_modules if paths
        ]
        matrices[name] = of_blocks if len(of_blocks) == loaded.blocks else []
    return matrices


def parameters(matrices: Matrices) -> list[Any]:
    """In one order, each once."""
    modules = [module for of_blocks in matrices.values() for block in of_blocks for module in block]
    return list(dict.fromkeys(module.weight for module in modules))


def rows(matrices: Matrices, of: Callable[[Any], Any], width: int) -> Rows:
    """`of` each parameter: its gradient, or by how much it has changed. NaN where a matrix is
    missing.

    {name: (block, D, D)}.
    """
    made = nothing(width)
    for name, of_blocks in matrices.items():
        if of_blocks:
            of_block = (
                torch.cat([_rows(module, of(module.weight), name) for module in block])
                for block in of_blocks
            )
            made[name] = np.stack([_short(rows_OD, width) for rows_OD in of_block])
    return made


def change(before: Matrices, after: Matrices, width: int) -> Rows:
    """The update from one revision to another."""
    was = dict(zip(parameters(after), parameters(before), strict=True))
    return rows(
        after,
        lambda weight: weight.detach().float() - was[weight].detach().float().to(weight.device),
        width,
    )


def nothing(width: int) -> Rows:
    """In place of `rows`, where there are none."""
    return {name: np.full((1, 1, width), np.nan, np.float32) for name in MATRICES}


def _rows(module: Any, value: Any, name: str) -> Any:
    """With the width of the stream last. Linear layers keep a row for each output, Conv1D one for
    each input.
    """
    by_input = isinstance(module, Conv1D)
    return (value.T if by_input != (name in WRITING) else value).float()


def _short(rows_OD: Any, width: int) -> np.ndarray:
    """(D, D), with the same second moments."""
    missing = max(width - len(rows_OD), 0)
    return (
        torch.linalg.qr(torch.nn.functional.pad(rows_OD, (0, 0, 0, missing)), mode="r")[1]
        .cpu()
        .numpy()
    )
