"""States of a torch model and the gradients of its loss with respect to them, at scored positions
of windows.

What subspaces/states_and_gradients.py has of our network. Arrays carry the letters of `models`; J
folds of W windows, Q points of each.

Here O are the rows of a matrix, or other points.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import Listener, check_counts, forward
from anisoscope.subspaces.gradient_inputs import Read, Windows
from anisoscope.subspaces.hf import torch_matrices
from anisoscope.utils.errors import UserError

LEAVE = "leave tangents.enabled out"
# of the share of a random direction: so small a share along the vector of ones is rounding
ZERO = 1e-3


class Part(NamedTuple):
    """Some windows of one fold, and which points lie in them."""

    fold: int
    windows: slice
    points_O: np.ndarray  # of the Q of the fold
    places_O: np.ndarray  # where they stand in these windows


def states(
    loaded: PretrainedModel, windows: Windows, basis_DD: np.ndarray, batch_size: int
) -> np.ndarray:
    """At the picked positions alone, (layer, P, D)."""
    kept = _Kept(loaded, windows, basis_DD.shape[0])
    for part in parts(windows, batch_size):

        def on_layer(n: int, x_BTD: Any, part: Part = part) -> None:
            kept.put("the residual stream", n, part, x_BTD)

        with Listener(loaded, on_layer) as counts:
            forward(loaded, windows.tokens_JWT[part.fold, part.windows])
        check_counts(loaded, counts, heads=False)
    return kept.points("the residual stream") @ basis_DD


def gradients(
    loaded: PretrainedModel, windows: Windows, basis_DD: np.ndarray, batch_size: int
) -> Read:
    """A forward and a backward pass for every `batch_size` windows; gradients of the summed loss.

    Kept are the picked rows of all layers, and of each matrix as many rows as its width.
    """
    layers, (folds, _, length), width = loaded.blocks + 1, windows.tokens_JWT.shape, len(basis_DD)
    of_model = torch_matrices.of_blocks(loaded)
    weights = torch_matrices.parameters(of_model)
    slopes = {weight: torch.zeros_like(weight, dtype=torch.float32) for weight in weights}
    norm_JNT, square_JNT = np.zeros((2, folds, layers, length))
    loss_JQ, kept = np.empty(windows.picks_JQ.shape, np.float32), _Kept(loaded, windows, width)
    before = [weight.requires_grad for weight in weights]
    try:
        for weight in weights:
            weight.requires_grad_(True)
        for part in parts(windows, batch_size):
            with _explain_torch_errors(loaded):
                streams, loss_BT = _forward(loaded, windows, part)
                derivatives = _backward(
                    loaded, streams, loss_BT, _there(windows.weights_JWT, part, loss_BT), weights
                )
            for weight, slope in zip(weights, derivatives[layers:], strict=True):
                slopes[weight] += slope
            loss_JQ[part.fold, part.points_O] = _array(loss_BT).ravel()[part.places_O]
            for n, (x_BTD, slope_BTD) in enumerate(zip(streams, derivatives, strict=False)):
                kept.put("the residual stream", n, part, x_BTD)
                kept.put("the gradient", n, part, slope_BTD)
                norm_BT = slope_BTD.float().norm(dim=-1)
                norm_JNT[part.fold, n] += _array(norm_BT.sum(0))
                square_JNT[part.fold, n] += _array(norm_BT.square().sum(0))
    finally:
        for weight, was in zip(weights, before, strict=True):
            weight.requires_grad_(was)
    if not (
        np.isfinite(square_JNT).all() and all(slope.isfinite().all() for slope in slopes.values())
    ):
        dtype = loaded.about["computed_in"]
        raise UserError(f"gradients hold numbers that are not finite, computed in {dtype}; {LEAVE}")
    count = windows.tokens_JWT.shape[1]
    points_NPD, slope_NPD = kept.points("the residual stream"), kept.points("the gradient")
    return Read(
        points_NPD @ basis_DD,
        slope_NPD @ basis_DD,
        loss_JQ.ravel(),
        (norm_JNT / count).astype(np.float32),
        (square_JNT / count).astype(np.float32),
        *_shares(points_NPD, slope_NPD, folds, centred=basis_DD.shape[1] < width),
        torch_matrices.rows(of_model, slopes.__getitem__, width),
    )


def _forward(loaded: PretrainedModel, windows: Windows, part: Part) -> tuple[list[Any], Any]:
    """The stream at every layer, as torch follows it, and the loss of every position in nats."""
    streams, versions = [], []

    def on_layer(n: int, x_BTD: Any) -> None:
        if not x_BTD.requires_grad:  # no table of tokens before it that has a gradient
            x_BTD.requires_grad_(True)
        streams.append(x_BTD)
        versions.append(x_BTD._version)

    with Listener(loaded, on_layer) as counts:
        tokens_BT = windows.tokens_JWT[part.fold, part.windows]
        logits_BTV = forward(loaded, tokens_BT, loaded.model, differentiated=True).logits.float()
    check_counts(loaded, counts, heads=False)
    if changed := [n for n, x_BTD in enumerate(streams) if x_BTD._version != versions[n]]:
        raise UserError(
            f"{type(loaded.model).__name__} changes layer {changed[0]} in place after it was seen: "
            f"its gradient cannot be had; {LEAVE}"
        )
    targets_BT = _there(windows.targets_JWT, part, logits_BTV).long()
    return streams, torch.nn.functional.cross_entropy(
        logits_BTV.transpose(1, 2), targets_BT, reduction="none"
    )


def _backward(
    loaded: PretrainedModel, streams: list[Any], loss_BT: Any, weights_BT: Any, weights: list[Any]
) -> list[Any]:
    derivatives = torch.autograd.grad(
        (loss_BT * weights_BT).sum(), [*streams, *weights], allow_unused=True
    )
    if unused := [n for n, slope in enumerate(derivatives[: len(streams)]) if slope is None]:
        raise UserError(
            f"{type(loaded.model).__name__}: the loss does not hang on layer {unused[0]} as torch follows it: "
            f"its gradient cannot be had; {LEAVE}"
        )
    return [
        torch.zeros_like(x) if slope is None else slope
        for x, slope in zip([*streams, *weights], derivatives, strict=True)
    ]


@contextlib.contextmanager
def _explain_torch_errors(loaded: PretrainedModel) -> Iterator[None]:
    """What torch cannot differentiate, in one line."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        why = str(error).strip().splitlines()[0]
        raise UserError(
            f"{type(loaded.model).__name__} cannot be differentiated ({why}); {LEAVE}"
        ) from error


def ones_share(read_now: Read) -> float:
    """The largest over layers of the gradient's share along the vector of ones."""
    return float((np.asarray(read_now.ones_JN).sum(0) / np.asarray(read_now.total_JN).sum(0)).max())


def without_ones(read_now: Read, width: int) -> bool:
    """Whether norms remove the mean coordinate of what they read, as LayerNorm does, wherever the
    stream is read.
    """
    return ones_share(read_now) < ZERO / width


def parts(windows: Windows, batch_size: int) -> Iterator[Part]:
    folds, count, length = windows.tokens_JWT.shape
    for fold in range(folds):
        for start in range(0, count, batch_size):
            places_Q = windows.picks_JQ[fold] - start * length
            points_O = np.flatnonzero((places_Q >= 0) & (places_Q < batch_size * length))
            yield Part(fold, slice(start, start + batch_size), points_O, places_Q[points_O])


class _Kept:
    """Picked rows of every layer, by name."""

    def __init__(self, loaded: PretrainedModel, windows: Windows, width: int):
        self.loaded, self.shape = loaded, (loaded.blocks + 1, *windows.picks_JQ.shape, width)
        self.made: dict[str, np.ndarray] = {}

    def put(self, name: str, n: int, part: Part, x_BTD: Any) -> None:
        """UserError where a number is not finite."""
        rows_OD = _array(x_BTD.reshape(-1, x_BTD.shape[-1]))[part.places_O]
        if not np.isfinite(rows_OD).all():
            dtype = self.loaded.about["computed_in"]
            raise UserError(
                f"{name} of layer {n} holds numbers that are not finite, computed in {dtype}"
            )
        self.made.setdefault(name, np.empty(self.shape, np.float32))[
            n, part.fold, part.points_O
        ] = rows_OD

    def points(self, name: str) -> np.ndarray:
        layers, folds, share, width = self.shape
        return self.made[name].reshape(layers, folds * share, width)


def _shares(
    points_NPD: np.ndarray, slope_NPD: np.ndarray, folds: int, centred: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums over the rows of a fold of |g|^2 along the vector of ones, along the state, and in all,
    (J, N).
    """
    ones, radial, total = [], [], []
    # a layer at a time: as large as one is enough
    for x_PD, slope_PD in zip(points_NPD, slope_NPD, strict=True):
        x_PD = x_PD - x_PD.mean(axis=1, keepdims=True) if centred else x_PD
        norm_P1 = np.linalg.norm(x_PD, axis=1, keepdims=True)
        # a token of padding may have a state of 0
        unit_PD = x_PD / np.where(norm_P1 > 0, norm_P1, 1.0)
        of_points = (
            np.square(slope_PD.sum(axis=1)) / slope_PD.shape[1],
            np.square((slope_PD * unit_PD).sum(axis=1)),
            np.square(slope_PD).sum(axis=1),
        )
        for sums, x_P in zip((ones, radial, total), of_points, strict=True):
            sums.append(x_P.reshape(folds, -1).sum(axis=1))
    return tuple(np.stack(sums, axis=1) for sums in (ones, radial, total))


def _there(x_JWT: np.ndarray, part: Part, like: Any) -> Any:
    return torch.as_tensor(np.ascontiguousarray(x_JWT[part.fold, part.windows]), device=like.device)


def _array(x: Any) -> np.ndarray:
    return x.detach().to("cpu", torch.float32).numpy()
