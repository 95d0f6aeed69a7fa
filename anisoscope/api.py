"""The public functions: measure arrays, attention, functions, pretrained models and runs.

Each function imports its dependencies when called, so that `import anisoscope` is quick.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.metrics.convert import ArrayLike
from anisoscope.utils.errors import as_value_error
from anisoscope.utils.progress import library_call

if TYPE_CHECKING:
    import jax
    import numpy as np
    import xarray as xr
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from anisoscope.sources.finished_run import OpenRun

    Model = (
        str | os.PathLike[str] | PreTrainedModel | tuple[PreTrainedModel, PreTrainedTokenizerBase]
    )

# families that are measured where none are named
FIRST_LOOK = ("spectrum", "dimension", "similarity")
Vectors = ArrayLike | Sequence[ArrayLike]
Params = TypeVar("Params")


@contextlib.contextmanager
def needs_torch(name: str) -> Iterator[None]:
    """Say how to install what a function on pretrained models imports."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f'{name}: {error}; pip install "anisoscope[pretrained]"') from error


def measure(
    x: Vectors | str | os.PathLike[str],
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    token_positions: ArrayLike | Sequence[int] | None = None,
    unembedding: tuple[Mapping[str, object] | None, ArrayLike] | None = None,
    targets: ArrayLike | Sequence[int] | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    num_chunks: int = 1,
    seed: int = 0,
    metrics: Mapping[str, Callable[[np.ndarray], float]] | None = None,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure clouds of vectors: values, 95 % intervals, and the excess over null models.

    Values are of all points. For the intervals alone, folds of unequal clusters are thinned at
    random and weighted by their share of the points. Fewer than five clusters: a warning. Rows of
    zeros, constant columns, duplicates and tied distances are counted in `attrs["degenerate"]`.

    Args:
        x: (points, width), (layers, points, width) or a list of layers: NumPy, JAX or PyTorch
            arrays, DataFrames or memory-mapped files; or the path of a file of them.
        clusters: (points,), a label of the sentence, image or window of each point: whole clusters
            are resampled. Without labels folds are runs of consecutive points.
        token_positions: (points,), the place of each point in its cluster, 0 for its first token;
            the family `leading` reads them.
        unembedding: (norm, W), the map from the last layer to logits: W (vocabulary, width), norm
            None or a dict of `kind` ("layer", "rms") and any of `scale`, `shift`, `epsilon`.
        targets: (points,), the token that each point is to predict, below 0 for none.
        families: families of quantities (docs/reference/metric_families.md), or "all" of vectors.
        nulls: "gaussian" (clouds of the same spectrum), "isotropic", "capped" (spectra),
            "flipped" (random signs of clusters), or () for none.
        layer_names: of the layers; else they are numbered from 0.
        folds: parts of whole clusters to resample, at most; 1 for values without intervals.
        num_chunks: measure chunks of whole clusters separately, for more points than fit into
            memory; values are means over chunks, of as many points as a chunk has.
        seed: of the folds and of the null model.
        metrics: your own functions of a cloud (points, width) in float32, by name. Each returns a
            number, and gets an interval and the excess over "gaussian".
        quiet: without a progress bar (after ten seconds) and a line about compiling.

    Returns:
        A Dataset with a variable for each quantity and the dimensions (statistic, layer, …),
        without layer where x is one matrix; statistic is "mean", "low", "high" or "std".
        `<quantity>_excess` has a dimension `null`: value minus that null model. `.attrs` of a
        variable have its formula, units and source. What so few points do not show is NaN.

    Raises:
        ValueError: shapes that do not fit, a number that is not finite or that float32 cannot hold,
            too few points or clusters; in one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((512, 8))
    >>> table = measure(x, clusters=np.arange(512) // 16, families="similarity")
    >>> print(f"{float(table.mean_cosine.sel(statistic='mean')):.3f}")
    0.000
    """
    from anisoscope.sources import arrays

    with library_call(quiet):
        return arrays.measure_vectors(
            x,
            families,
            nulls,
            clusters=clusters,
            token_positions=token_positions,
            unembedding=unembedding,
            targets=targets,
            names=layer_names,
            folds=folds,
            num_chunks=num_chunks,
            seed=seed,
            metrics=metrics,
        )


def compare(
    a: Vectors,
    b: Vectors,
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    folds: int = 8,
    seed: int = 0,
    labels: tuple[str, str] = ("a", "b"),
    quiet: bool = False,
) -> xr.Dataset:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        a: vectors of the first model, as for `measure`: (layers, points, width) or one layer.
        b: vectors of the second model at the same points in the same order; any width.
        clusters: (points,), as for `measure`: the sentence, image or window of each point.
        folds: parts of whole clusters to resample, at most; 1 for values without intervals.
        seed: of the null model and the folds.
        labels: names of the models, for figures.
        quiet: without a line about compiling.

    Returns:
        A Dataset of `cka` (linear CKA), `cka_unbiased` and `neighbor_overlap` with the dimensions
        (statistic, layer, other_layer). Each has an excess over the null model "permuted": whole
        clusters of `a` in random order (without clusters, all points shifted by a random number).

    Raises:
        ValueError: vectors of different points, or what cannot be measured; in one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 128, 8))
    >>> table = compare(x, 3 * x[:, :, ::-1])  # rotated and scaled
    >>> table.cka.sel(statistic="mean").values.diagonal().round(3)
    array([1., 1.])
    """
    from anisoscope.sources import two_models

    with library_call(quiet):
        return two_models.compare_arrays(a, b, clusters, folds, seed, labels)


def measure_attention(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    mask: str | ArrayLike,
    bias: ArrayLike | None = None,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    num_chunks: int = 1,
    seed: int = 0,
    quiet: bool = False,
) -> xr.Dataset:
    """Measure queries and keys, and how sharp the attention is that they make.

    Args:
        queries: (layers, heads, windows, T, K), as they enter the dot product.
        keys: the same shape; keys that several heads share are repeated.
        mask: which key (column) each query (row) sees: "causal", "bidirectional", or booleans (T,
            T) or (layers, T, T).
        bias: added to the scores <q, k> / sqrt(K): (layers, heads, T, T), or broadcast to that.
        layer_names: of the layers; else they are numbered from 1.
        folds: parts of whole windows to resample, at most; 1 for values without intervals.
        num_chunks: chunks of windows, for more than fit into memory; values are means over them.
        seed: kept with the table.
        quiet: without a progress bar (after ten seconds) and a line about compiling.

    Returns:
        A Dataset as of `measure`, with the dimensions (statistic, block, head, …).

    Raises:
        ValueError: shapes that do not fit, or a number that is not finite; in one line.

    >>> import numpy as np
    >>> queries = np.zeros((2, 4, 8, 16, 8), np.float32)  # all scores are equal
    >>> table = measure_attention(queries, queries, mask="bidirectional")
    >>> print(f"{float(table.attention_entropy.sel(statistic='mean').mean()):.3f}")  # ln 16
    2.773
    """
    from anisoscope.sources import arrays

    with library_call(quiet):
        return arrays.measure_heads(queries, keys, mask, bias, layer_names, folds, num_chunks, seed)


def make_measure(
    function: Callable[[Params, jax.Array], jax.Array],
    tokens: ArrayLike,
    *,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    layer_names: Sequence[str] | None = None,
    folds: int = 8,
    seed: int = 0,
) -> Callable[[Params], xr.Dataset]:
    """Make a function that measures a JAX function for any parameters, compiled once.

    Args:
        function: (params, tokens) -> activations (layers, windows, T, width).
        tokens: (windows, …) of any kind; whole windows are resampled.
        families: as for `measure`.
        nulls: as for `measure`.
        layer_names: of the layers; else they are numbered from 0.
        folds: parts of whole windows to resample, at most.
        seed: of the null model.

    Returns:
        A function of params that gives the Dataset of `measure`.

    Raises:
        ValueError: a wrong shape, or activations that are not finite; in one line.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> def embed(table_VD, tokens_BT):  # a single layer
    ...     return table_VD[tokens_BT][None]
    >>> tokens = np.random.default_rng(0).integers(0, 50, (64, 16))
    >>> read = make_measure(embed, tokens, families="similarity", nulls=())
    >>> mean = read(jnp.ones((50, 8))).mean_cosine.sel(statistic="mean")
    >>> print(f"{float(mean.squeeze()):.3f}")
    1.000
    """
    from anisoscope.sources import arrays

    return arrays.make_measure(function, tokens, families, nulls, layer_names, folds, seed)


def measure_model(
    model: Model,
    texts: str | os.PathLike[str] | Iterable[str],
    *,
    revision: str | Sequence[str] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
    window: int = 256,
    points: int = 4096,
    batches: int | None = None,
    special_tokens: bool = False,
    dtype: str = "float32",
    batch_size: int = 8,
    padding: Literal["left", "right"] | None = None,
    pool: str | Sequence[str] = (),
    quiet: bool = False,
) -> xr.Dataset:
    """Measure a transformer's residual stream while it reads a text.

    A model in memory is left as it was: its mode, hooks, gradients, device and caches.

    Args:
        model: a name of the Hugging Face hub, a local folder, a .gguf file, a model in memory, or
            (model, tokenizer). Only safetensors and GGUF files are read; no model's code is run.
        texts: texts, a column of a Dataset or a Dataset with the column "text", or the path of a
            UTF-8 file. They are joined by blank lines, and windows are drawn at random.
        revision: a branch, tag or commit of the hub; a folder in a local folder. Several, as
            ("step1000", "step143000"), give one table with the dimension `step`.
        tokenizer: of a model in memory; those of a name or folder come with it.
        families: as for `measure`; "all" adds attention, sinks and logit_lens, where known.
        nulls: as for `measure`, and "shuffled": the model reads the same tokens in random order.
        seed: which windows, texts and positions are read.
        window: tokens that the model reads at a time.
        points: vectors of a cloud; of separate texts at most so many.
        batches: clouds, of disjoint windows (2 by default) or texts (1).
        special_tokens: begin and end every window or text as the tokenizer begins and ends a text.
        dtype: that the model computes in: "float32", "bfloat16" or "float16". A model in memory
            keeps its own. All is measured in float32.
        batch_size: windows or texts in one pass of the model.
        padding: "left" or "right": read each text by itself, cut to the window, in padded batches
            with an attention mask. Lines of a file are texts. Padding is in no cloud.
        pool: "mean", "last", "cls" or several of these: a vector of each separate text, beside
            those of tokens.
        quiet: without a progress bar (after ten seconds) and a line about compiling.

    Returns:
        A Dataset as of `measure`, with the dimension positions: "all"; "without_first_token", of
        every window or text; with special tokens "without_special"; and each of `pool`. `.attrs`
        have the model, text, windows, checks, and versions of the libraries.

    Warns:
        UserWarning: the model predicts the text worse than the frequencies of its tokens do.

    Raises:
        ValueError: what cannot be read or measured; in one line.
        ImportError: torch or transformers is not installed: `pip install "anisoscope[pretrained]"`.

    >>> options = {"families": "similarity", "window": 16, "points": 64, "nulls": ()}
    >>> table = measure_model((model, tokenizer), texts, **options)  # or a name, as "gpt2"
    >>> table.positions.values.tolist()
    ['all', 'without_first_token']
    """
    with needs_torch("measure_model"):
        from anisoscope.sources.hf import measure_model

    import jax

    settings = {
        "window": window,
        "special_tokens": special_tokens,
        "pretrained.dtype": str(dtype).removeprefix("torch."),
        "pretrained.batch_size": batch_size,
        "measure.points": points,
        "measure.batches": batches,
        "measure.seed": seed,
    }
    with jax.enable_x64(False), library_call(quiet):
        return measure_model.measure_model(
            model, texts, revision, tokenizer, families, nulls, padding, pool, settings
        )


def compare_models(
    a: Model,
    b: Model,
    texts: str | os.PathLike[str] | Iterable[str],
    *,
    revisions: tuple[str | None, str | None] = (None, None),
    seed: int = 0,
    window: int = 256,
    points: int = 4096,
    batches: int = 2,
    special_tokens: bool = False,
    dtype: str = "float32",
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
        revisions: of `a` and of `b`, as ("step1000", "step143000") of one model.
        seed: which pieces and points are read, and of the null model.
        window: tokens in a piece, on average, of the model whose tokens are shorter.
        points: of a cloud.
        batches: clouds, of disjoint pieces.
        special_tokens: begin and end every piece as the tokenizer begins and ends a text.
        dtype: that models opened by name compute in: "float32", "bfloat16" or "float16".
        labels: names of the models, for figures; else those of `a` and `b`.
        quiet: without a progress bar (after ten seconds) and a line about compiling.

    Returns:
        A Dataset as of `compare`, with the dimension positions: "all", and "without_first_token"
        of either model. The null model "permuted" pairs each point with one of another piece.

    Raises:
        ValueError: what cannot be read or compared, or too short a text; in one line.
        ImportError: torch or transformers is not installed: `pip install "anisoscope[pretrained]"`.

    >>> options = {"window": 16, "points": 64, "batches": 1}
    >>> table = compare_models((model, tokenizer), (model, tokenizer), texts, **options)
    >>> value = table.cka.sel(statistic="mean", positions="all")  # (layer, other_layer)
    >>> print(f"{float(value[1, 1]):.3f}")  # of a model with itself
    1.000
    """
    with needs_torch("compare_models"):
        from anisoscope.sources.hf import two_pretrained

    import jax

    settings = {
        "window": window,
        "special_tokens": special_tokens,
        "pretrained.dtype": str(dtype).removeprefix("torch."),
        "measure.points": points,
        "measure.batches": batches,
        "measure.seed": seed,
    }
    with jax.enable_x64(False), library_call(quiet):
        return two_pretrained.compare_models((a, b), texts, revisions, labels, settings)


def open_run(folder: str | os.PathLike[str]) -> OpenRun:
    """Open a trained run: its settings, text, checkpoints and model. Nothing is written.

    Args:
        folder: of one run, as runs/quickstart/decoder.

    Returns:
        An OpenRun: `.config`, `.corpus`, `.steps`, `.params(step)`, `.windows(count)`,
        `.vectors(params, tokens)`. Steps that were never saved are trained again, in memory.

    Raises:
        ValueError: there is no run, or its text has changed since it was trained; in one line.

    >>> run = open_run("runs/quickstart/decoder")
    >>> params, tokens = run.params(run.steps[-1]), run.windows(4)
    >>> run.vectors(params, tokens).ndim  # layers, windows, time, width
    4
    """
    from anisoscope.sources import finished_run

    with as_value_error():
        return finished_run.open_run(folder)
