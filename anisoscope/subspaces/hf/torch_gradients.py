"""Compute states of a torch model, and the gradients of its loss by states and matrices.

The matrices are those that read or write the residual stream; subspaces/tangent_gradients.py does
the same for our network. Arrays carry the letters of `models`; J folds of W windows, Q points of a
fold. O are the rows of a matrix, width last, or other points. A matrix is reduced to at most D rows
with the same second moments.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.pytorch_utils import Conv1D

from anisoscope.sources.hf.extract import (
    RESIDUALS,
    check_finite_activations,
    forward,
    residual_stream,
    to_array,
)
from anisoscope.sources.hf.layer_capture import Listener
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.subspaces.tangent_gradients import WRITING, Gradients, Rows, TangentWindows
from anisoscope.subspaces.tangent_quantities import MATRICES
from anisoscope.utils.errors import UserError

LEAVE_TANGENTS = "leave tangents.enabled out"
# in shares of a random direction: a smaller share along the vector of ones is rounding
ZERO = 1e-3
Matrices = dict[str, list[list[Any]]]  # by block, the modules whose rows are stacked


class Part(NamedTuple):
    """Some windows of one fold, and the points in them."""

    fold: int
    windows: slice
    points_O: np.ndarray  # indices among the Q points of the fold
    places_O: np.ndarray  # positions in these windows


def split_folds(windows: TangentWindows, batch_size: int) -> Iterator[Part]:
    """Yield the windows of every fold, `batch_size` at a time."""
    folds, count, length = windows.tokens_JWT.shape
    for fold in range(folds):
        for start in range(0, count, batch_size):
            places_Q = windows.picks_JQ[fold] - start * length
            points_O = np.flatnonzero((places_Q >= 0) & (places_Q < batch_size * length))
            yield Part(fold, slice(start, start + batch_size), points_O, places_Q[points_O])


def states(
    loaded: PretrainedModel, windows: TangentWindows, basis_DD: np.ndarray, batch_size: int
) -> np.ndarray:
    """Return the states at the picked positions, (layer, P, D)."""
    rows_NJQD = _new_rows(loaded, windows)
    for part in split_folds(windows, batch_size):
        streams, _ = residual_stream(loaded, windows.tokens_JWT[part.fold, part.windows])
        _keep_rows(rows_NJQD, part, streams, loaded, RESIDUALS)
    return rows_NJQD.reshape(len(rows_NJQD), -1, rows_NJQD.shape[-1]) @ basis_DD


def compute_torch_gradients(
    loaded: PretrainedModel, windows: TangentWindows, basis_DD: np.ndarray, batch_size: int
) -> Gradients:
    """Run a forward and a backward pass of the summed loss for every `batch_size` windows.

    The picked rows of all layers are kept, and of each matrix as many rows as its width.
    """
    layers, (folds, count, length) = loaded.blocks + 1, windows.tokens_JWT.shape
    matrices = collect_torch_matrices(loaded)
    weights = parameters(matrices)
    slopes = {weight: torch.zeros_like(weight, dtype=torch.float32) for weight in weights}
    norm_JNT, square_JNT = np.zeros((2, folds, layers, length))
    loss_JQ = np.empty(windows.picks_JQ.shape, np.float32)
    streams_NJQD, slopes_NJQD = (_new_rows(loaded, windows) for _ in range(2))
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        for part in split_folds(windows, batch_size):
            streams, loss_BT = _forward(loaded, windows, part)
            derivatives = _backward(loaded, streams, loss_BT, windows, part, weights)
            for weight, slope in zip(weights, derivatives[layers:], strict=True):
                slopes[weight] += slope
            loss_JQ[part.fold, part.points_O] = to_array(loss_BT).ravel()[part.places_O]
            _keep_rows(streams_NJQD, part, streams, loaded, RESIDUALS)
            _keep_rows(slopes_NJQD, part, derivatives[:layers], loaded, "the gradient")
            for n, slope_BTD in enumerate(derivatives[:layers]):
                norm_BT = slope_BTD.float().norm(dim=-1)
                norm_JNT[part.fold, n] += to_array(norm_BT.sum(0))
                square_JNT[part.fold, n] += to_array(norm_BT.square().sum(0))
    finally:
        for weight, required in zip(weights, before, strict=True):
            weight.requires_grad_(required)
    check_finite_activations(square_JNT, loaded, "the gradient")
    for slope in slopes.values():
        check_finite_activations(to_array(slope), loaded, "the gradient of a matrix")
    points_NPD, slope_NPD = (
        x.reshape(layers, -1, x.shape[-1]) for x in (streams_NJQD, slopes_NJQD)
    )
    width, dimensions = basis_DD.shape
    return Gradients(
        points_NPD @ basis_DD,
        slope_NPD @ basis_DD,
        loss_JQ.ravel(),
        (norm_JNT / count).astype(np.float32),
        (square_JNT / count).astype(np.float32),
        *_shares(points_NPD, slope_NPD, folds, centered=dimensions < width),
        torch_matrix_rows(matrices, slopes.__getitem__, width),
    )


def _forward(loaded: PretrainedModel, windows: TangentWindows, part: Part) -> tuple[list[Any], Any]:
    """Return the stream at every layer in torch's graph, and the loss at every position in nats."""
    versions = []

    def differentiable(x_BTD: Any) -> Any:
        versions.append(x_BTD._version)
        # without a gradient where no earlier parameter has one
        return x_BTD if x_BTD.requires_grad else x_BTD.requires_grad_(True)

    with Listener(loaded, differentiable) as heard:
        tokens_BT = windows.tokens_JWT[part.fold, part.windows]
        logits_BTV = forward(loaded, tokens_BT, loaded.model, differentiated=True).logits.float()
    streams = heard.layers
    if changed := [n for n, x_BTD in enumerate(streams) if x_BTD._version != versions[n]]:
        what = f"{loaded.class_name} changes layer {changed[0]} in place: no gradient"
        raise UserError(f"{what}; {LEAVE_TANGENTS}")
    targets_BT = _tensor(windows.targets_JWT, part, logits_BTV).long()
    return streams, torch.nn.functional.cross_entropy(
        logits_BTV.transpose(1, 2), targets_BT, reduction="none"
    )


def _backward(
    loaded: PretrainedModel,
    streams: list[Any],
    loss_BT: Any,
    windows: TangentWindows,
    part: Part,
    weights: list[Any],
) -> list[Any]:
    """Return the gradients of the summed loss by streams and weights."""
    loss = (loss_BT * _tensor(windows.weights_JWT, part, loss_BT)).sum()
    derivatives = torch.autograd.grad(loss, [*streams, *weights], allow_unused=True)
    if unused := [n for n, slope in enumerate(derivatives[: len(streams)]) if slope is None]:
        what = f"{loaded.class_name}: the loss does not depend on layer {unused[0]}"
        raise UserError(f"{what} in torch's graph; {LEAVE_TANGENTS}")
    return [
        torch.zeros_like(x) if slope is None else slope
        for x, slope in zip([*streams, *weights], derivatives, strict=True)
    ]


def ones_share(read: Gradients) -> float:
    """Return the largest share over layers of the gradient along the vector of ones."""
    return float((np.asarray(read.ones_JN).sum(0) / np.asarray(read.total_JN).sum(0)).max())


def removes_ones(read: Gradients, width: int) -> bool:
    """Return whether every norm removes the mean coordinate, as LayerNorm does."""
    return ones_share(read) < ZERO / width


def _new_rows(loaded: PretrainedModel, windows: TangentWindows) -> np.ndarray:
    width = loaded.model.config.hidden_size
    return np.empty((loaded.blocks + 1, *windows.picks_JQ.shape, width), np.float32)


def _keep_rows(
    rows_NJQD: np.ndarray, part: Part, layers: list[Any], loaded: PretrainedModel, name: str
) -> None:
    """Keep the picked rows of a part in every layer; UserError where a number is not finite."""
    for n, x_BTD in enumerate(layers):
        rows_OD = to_array(x_BTD.reshape(-1, x_BTD.shape[-1]))[part.places_O]
        check_finite_activations(rows_OD, loaded, f"{name} of layer {n}")
        rows_NJQD[n, part.fold, part.points_O] = rows_OD


def _shares(
    points_NPD: np.ndarray, slope_NPD: np.ndarray, folds: int, centered: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum |g|^2 along the vector of ones, along the state, and in all, over a fold's rows, (J, N)."""
    sums = []
    # layer by layer, in the memory of one layer
    for x_PD, slope_PD in zip(points_NPD, slope_NPD, strict=True):
        x_PD = x_PD - x_PD.mean(axis=1, keepdims=True) if centered else x_PD
        norm_P1 = np.linalg.norm(x_PD, axis=1, keepdims=True)
        # a padding token may have a zero state
        unit_PD = x_PD / np.where(norm_P1 > 0, norm_P1, 1.0)
        parts = (
            np.square(slope_PD.sum(axis=1)) / slope_PD.shape[1],
            np.square((slope_PD * unit_PD).sum(axis=1)),
            np.square(slope_PD).sum(axis=1),
        )
        sums.append([x_P.reshape(folds, -1).sum(axis=1) for x_P in parts])
    return tuple(np.stack(sums_J, axis=1) for sums_J in zip(*sums, strict=True))


def _tensor(x_JWT: np.ndarray, part: Part, like: Any) -> Any:
    return torch.as_tensor(np.ascontiguousarray(x_JWT[part.fold, part.windows]), device=like.device)


def collect_torch_matrices(loaded: PretrainedModel) -> Matrices:
    """Collect the matrices as wide as the stream, block by block, without shared matrices."""
    width, table = loaded.model.config.hidden_size, loaded.base.get_input_embeddings()
    matrices = {"embedding": [[table]] if table.weight.shape[1] == width else []}
    for name in MATRICES[1:]:
        paths = getattr(loaded.adapter.kernels, name, ())
        paths = (paths,) if isinstance(paths, str) else paths
        modules = [
            [block.get_submodule(path) for path in paths] for block in loaded.block_modules if paths
        ]
        matrices[name] = modules if len(modules) == loaded.blocks else []
    return matrices


def parameters(matrices: Matrices) -> list[Any]:
    """Return each weight once, in a fixed order."""
    modules = [module for blocks in matrices.values() for block in blocks for module in block]
    return list(dict.fromkeys(module.weight for module in modules))


def torch_matrix_rows(matrices: Matrices, value: Callable[[Any], Any], width: int) -> Rows:
    """Return rows of `value(weight)`, such as gradients or changes: {name: (block, D, D)}.

    They have the second moments of all rows; those of a missing matrix are NaN.
    """
    rows = missing_rows(width)
    for name, blocks in matrices.items():
        shorts = []
        for block in blocks:
            parts = []
            for module in block:
                # Linear has a row for each output, Conv1D a row for each input
                transposed = isinstance(module, Conv1D) != (name in WRITING)
                x = value(module.weight).float()
                parts.append(x.T if transposed else x)
            rows_OD = torch.cat(parts)
            padding = (0, 0, 0, max(width - len(rows_OD), 0))
            padded_OD = torch.nn.functional.pad(rows_OD, padding)
            shorts.append(torch.linalg.qr(padded_OD, mode="r")[1].cpu().numpy())
        if blocks:
            rows[name] = np.stack(shorts)
    return rows


def revision_update(before: Matrices, after: Matrices, width: int) -> Rows:
    """Return the update from one revision to another."""
    old = dict(zip(parameters(after), parameters(before), strict=True))
    return torch_matrix_rows(
        after,
        lambda weight: weight.detach().float() - old[weight].detach().float().to(weight.device),
        width,
    )


def missing_rows(width: int) -> Rows:
    """Return NaN rows for every matrix."""
    return {name: np.full((1, 1, width), np.nan, np.float32) for name in MATRICES}
