"""The public functions of pretrained models, their training, and runs.

Each function imports its dependencies when called, so that `import anisoscope` is quick.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK
from anisoscope.utils.errors import as_value_error
from anisoscope.utils.extras import required_by
from anisoscope.utils.progress import library_call, report_stage

if TYPE_CHECKING:
    import xarray as xr
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

    from anisoscope.sources.finished_run import OpenRun

    Model = (
        str | os.PathLike[str] | PreTrainedModel | tuple[PreTrainedModel, PreTrainedTokenizerBase]
    )


def measure_model(
    model: Model,
    texts: str | os.PathLike[str] | Iterable[str],
    *,
    revision: str | Sequence[str] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    layers: Sequence[int] | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
    window: int = 256,
    points: int = 4096,
    batches: int | None = None,
    special_tokens: bool = False,
    dtype: str = "float32",
    device: str | None = None,
    batch_size: int = 8,
    padding: Literal["left", "right"] | None = None,
    pool: str | Sequence[str] = (),
    without_massive: bool = False,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure a transformer's residual stream while it reads a text.

    A model in memory is left as it was: its mode, settings, hooks, gradients and device.

    Args:
        model: a name of the Hugging Face hub, a local folder, a .gguf file, a model in memory, or
            (model, tokenizer). Only safetensors and GGUF files are read; no model's code is run.
        texts: texts, a Dataset or rows with a column "text", or the path of a UTF-8 file. A string
            with a line break, or longer than a path, is a text. They are joined by blank lines, and
            windows are drawn at random; of a long text pieces from random places are read.
        revision: a branch, tag or commit of the hub, or a subfolder of a local folder. Several,
            such as ("step1000", "step143000"), give one table with the dimension `step`.
        tokenizer: required for a model in memory; for a name or folder it replaces the one stored
            with the weights.
        layers: numbers of the layers to read and measure, such as [0, 8, -1]: 0 is the embedding, n
            the output of block n, -1 the last. By default all. Chosen layers have no averages over
            blocks; `linearity` and `logit_lens`, which read others too, are refused.
        families: as for `measure`; "all" adds attention, sinks and logit_lens, where known.
        nulls: as for `measure`, and "shuffled": the model reads the same tokens in random order.
        seed: random seed that selects the windows, texts and positions.
        window: number of tokens that the model reads at a time.
        points: vectors in each cloud; for separate texts, the maximum.
        batches: number of clouds, from disjoint windows (default 2) or texts (default 1).
        special_tokens: begin and end every window or text as the tokenizer begins and ends a text.
        dtype: in which the model computes: "float32", "bfloat16" or "float16". A model in memory
            keeps its own. Measurements are always in float32.
        device: where a model opened by name computes, such as "cuda", "cuda:1" or "auto", which
            spreads it over all; by default the CPU. A model in memory stays where it is.
        batch_size: windows in one forward pass, or texts with as many tokens in all.
        padding: "left" or "right" reads each text by itself, cut to the window. Lines of a file are
            texts. They are padded only where that changes no vector: both sides are the same.
        pool: "mean", "last", "cls" or several of these: also measure one vector for each separate
            text.
        without_massive: measure also without the tokens that are massive in any layer that is read:
            longer than ten times the median norm there. `massive_vectors` counts them by layer.
        quiet: show neither a progress bar (after ten seconds) nor the message about compiling.

    Returns:
        A Dataset like that of `measure`, with the dimension positions: "all"; "without_first_token"
        (of every window or text); with special tokens "without_special"; "without_massive" where
        that is set; and each of `pool`. `.attrs` have the model, text, windows, checks, and
        versions of the libraries.

    Warns:
        UserWarning: the model predicts the text worse than the frequencies of its tokens do. Not
            with padding or pools, where the loss is not computed.

    Raises:
        ValueError: the input cannot be read or measured; the message is one line.
        ImportError: torch or transformers is not installed: `pip install "anisoscope[pretrained]"`.

    >>> options = {"families": "similarity", "window": 16, "points": 64, "nulls": ()}
    >>> table = measure_model((model, tokenizer), texts, **options)  # or a name, as "gpt2"
    >>> table.positions.values.tolist()
    ['all', 'without_first_token']
    """
    import jax

    settings = {
        "window": window,
        "layers": layers,
        "special_tokens": special_tokens,
        "pretrained.dtype": str(dtype).removeprefix("torch."),
        "pretrained.device_map": None if device is None else str(device),
        "pretrained.batch_size": batch_size,
        "measure.points": points,
        "measure.batches": batches,
        "measure.without_massive": bool(without_massive),
        "measure.seed": seed,
    }
    with jax.enable_x64(False), library_call(quiet):
        with required_by("measure_model"), report_stage("measure_model: importing transformers"):
            from anisoscope.sources.hf import measure_model

        return measure_model.measure_loaded(
            model, texts, revision, tokenizer, families, nulls, padding, pool, settings
        )


def compare_models(
    a: Model,
    b: Model,
    texts: str | os.PathLike[str] | Iterable[str],
    *,
    revision: str | tuple[str | None, str | None] | None = None,
    seed: int = 0,
    window: int = 256,
    points: int = 4096,
    batches: int = 2,
    special_tokens: bool = False,
    dtype: str = "float32",
    device: str | None = None,
    labels: tuple[str, str] | None = None,
    quiet: bool = False,
) -> xr.Dataset:
    """Compare every layer of one pretrained model with every layer of another, on one text.

    Both read the same pieces of the text. A point is a place where a token of both models ends, so
    tokenizers may differ (docs/howto/compare_models.md).

    Args:
        a: the first model, as for `measure_model`; one in memory as (model, tokenizer).
        b: the second.
        texts: as for `measure_model`; joined by blank lines, and pieces are drawn at random.
        revision: as for `measure_model`, of both models; or a pair, that of `a` and that of `b`,
            such as ("step1000", "step143000") of one model.
        seed: random seed that selects pieces and points, and of the null model.
        window: mean number of tokens in a piece, for the model with the shorter tokens.
        points: number of points in each cloud.
        batches: number of clouds, from disjoint pieces.
        special_tokens: begin and end every piece as the tokenizer begins and ends a text.
        dtype: in which models opened by name compute: "float32", "bfloat16" or "float16".
        device: where models opened by name compute, as for `measure_model`.
        labels: names of the models in figures; by default those of `a` and `b`.
        quiet: show neither a progress bar (after ten seconds) nor the message about compiling.

    Returns:
        A Dataset like that of `compare`, with the dimension positions: "all", and
        "without_first_token" of either model. The null model "permuted" pairs each point with one
        of another piece.

    Raises:
        ValueError: the input cannot be read or compared, or the text is too short; the message is
            one line.
        ImportError: torch or transformers is not installed: `pip install "anisoscope[pretrained]"`.

    >>> options = {"window": 16, "points": 64, "batches": 1}
    >>> table = compare_models((model, tokenizer), (model, tokenizer), texts, **options)
    >>> value = table.cka.sel(statistic="mean", positions="all")  # (layer, other_layer)
    >>> print(f"{float(value[1, 1]):.3f}")  # of a model with itself
    1.000
    """
    with required_by("compare_models"):
        from anisoscope.sources.hf import two_pretrained

    import jax

    settings = {
        "window": window,
        "special_tokens": special_tokens,
        "pretrained.dtype": str(dtype).removeprefix("torch."),
        "pretrained.device_map": None if device is None else str(device),
        "measure.points": points,
        "measure.batches": batches,
        "measure.seed": seed,
    }
    with jax.enable_x64(False), library_call(quiet):
        return two_pretrained.compare_pretrained((a, b), texts, revision, labels, settings)


def open_run(
    folder: str | os.PathLike[str], *, text: str | os.PathLike[str] | None = None
) -> OpenRun:
    """Open a trained run: its settings, text, checkpoints and model.

    Nothing is written or downloaded. The text alone lies outside of the folder, and is read when
    `.corpus` or `.windows` is first used.

    Args:
        folder: the folder of one run, such as runs/quickstart/decoder.
        text: where the text lies now; by default where the run found it.

    Returns:
        An OpenRun: `.config`, `.corpus`, `.steps`, `.params(step)`, `.windows(count)`,
        `.vectors(params, tokens)`.

    Raises:
        ValueError: there is no run, its settings or a checkpoint have changed since it was
            trained, or, when it is read, its text; the message is one line.
        ImportError: a library of training is not installed: `pip install "anisoscope[train]"`.

    >>> run = open_run("runs/quickstart/decoder")
    >>> params, tokens = run.params(run.steps[-1]), run.windows(4)
    >>> run.vectors(params, tokens).ndim  # layers, windows, time, width
    4
    """
    with required_by("open_run"):
        from anisoscope.sources import finished_run

    with as_value_error():
        run = finished_run.open_finished_run(folder, text)
    readers = {name: as_value_error()(getattr(run, name)) for name in ("params", "read_corpus")}
    return dataclasses.replace(run, **readers)


def trainer_callback(
    hook_points: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    every: int = 100,
    on: str = "step",
    points: int = 4096,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
) -> TrainerCallback:
    """Make a callback for the Trainer of transformers that calls `measure_step`.

    A step that cannot be measured causes a warning, and the training continues.

    Args:
        hook_points: names of modules, as for `record`.
        folder: as for `measure_step`.
        every: steps between tables, with a table of the last step too. That of step s holds the
            passes that make step s + 1, in training mode.
        on: "step"; or "evaluate": a table of all passes of each evaluation, without dropout. Of
            several sets of texts at a step, the first is measured.
        points: maximum number of vectors in a cloud.
        families: as for `measure`.
        nulls: as for `measure`.
        seed: seed of the sample.

    Returns:
        A TrainerCallback. Its hooks are removed when the training ends.

    Raises:
        ValueError: the folder holds other files or later steps, when the training begins.
        ImportError: torch or transformers is not installed: `pip install "anisoscope[pretrained]"`.

    >>> trainer.add_callback(trainer_callback(["transformer.h.0"], "geometry", every=50))
    """
    with required_by("trainer_callback"):
        from anisoscope.sources.hf.trainer_callback import MeasureCallback

    options = {"families": families, "nulls": nulls, "seed": seed}
    with as_value_error():
        return MeasureCallback(hook_points, folder, every, on, points, options)
