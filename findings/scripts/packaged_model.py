"""Open a packaged model with windows of a text, and read its heads: shared by scripts of models."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse.linalg
import scipy.special

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import InputWindows, cut_token_windows, validation_text

WINDOWS, LENGTH = 8, 256  # windows, and tokens of a window


class Packaged(NamedTuple):
    """A loaded model and its tokenizer."""

    loaded: load_model.PretrainedModel
    tokenizer: Any

    def windows(self, text: str, special: bool) -> InputWindows:
        """Cut WINDOWS windows of LENGTH tokens, with the tokenizer's special tokens or without."""
        probe = MeasureConfig(points=WINDOWS * (LENGTH - 2), batches=1, folds=1)
        config = PretrainedConfig(measure=probe, window=LENGTH, special_tokens=special)
        return cut_token_windows(text, self.tokenizer, config)

    def read(self, tokens_WT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Read the residual stream (N, W, T, D), and each head's mean weight on the first token."""
        read = read_activations(self.loaded, tokens_WT[None], 2, heads=True)
        pattern, _ = guards.check_attention(self.loaded, tokens_WT[:2])
        none = np.zeros(self.loaded.blocks)
        bias_N = none if pattern.bias_NHTT is None else pattern.bias_NHTT
        blocks = zip(read.q_ZNBTHK[0], read.k_ZNBTHK[0], pattern.visible_NTT, bias_N, strict=True)
        return read.resid_ZLBTD[0], np.array([weight_on_first(*block) for block in blocks])


def open_packaged(model: str) -> Packaged:
    """Load the model of a folder or of a .gguf file."""
    place = find_weights(model, None)
    loaded = load_model.load_model(place, WeightsConfig(name=model))
    return Packaged(loaded, load_model.read_tokenizer(place))


def read_text(path: str | None) -> str:
    """Read the validation split of a file, or of the language reference of Python."""
    data = DataConfig(source="pydoc") if path is None else DataConfig(path=path)
    return validation_text(corpus.load_corpus(data, LENGTH))


def anisotropy(cloud_PD: np.ndarray, without: Any = ()) -> float:
    """Return the largest eigenvalue's share in float64, of all coordinates but some."""
    covariance_DD = np.cov(np.delete(cloud_PD.astype(np.float64), without, axis=1).T)
    start_D = np.random.default_rng(0).standard_normal(len(covariance_DD))
    return scipy.sparse.linalg.eigsh(covariance_DD, 1, v0=start_D)[0][0] / covariance_DD.trace()


def weight_on_first(
    q_WTHK: np.ndarray, k_WTHK: np.ndarray, visible_TT: np.ndarray, bias_HTT: np.ndarray
) -> np.ndarray:
    """Return each head's mean weight on the first token, over the rows of the others that see it."""
    product_WHTT = np.einsum("wqhk,wshk->whqs", q_WTHK, k_WTHK, optimize=True)
    scores_WHTT = product_WHTT / q_WTHK.shape[-1] ** 0.5 + bias_HTT
    weight_WHTT = scipy.special.softmax(np.where(visible_TT, scores_WHTT, -np.inf), axis=-1)
    return weight_WHTT[:, :, 1:, 0].mean(axis=(0, 2))
