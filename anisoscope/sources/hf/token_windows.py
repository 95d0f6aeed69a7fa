"""Cut texts into equal windows of tokens without padding, and pick positions.

Letters: G batches of windows, S sets of positions.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from transformers.models.auto.tokenization_auto import get_tokenizer_config

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.data.corpus import Corpus
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, make_probe
from anisoscope.utils.errors import SettingError, UserError
from anisoscope.utils.settings import replace

LONGEST_SPLIT = 8_000_000  # bytes of the validation split that are read
SAMPLE = 1_000_000  # characters for the estimate of token length
CUT_BYTES = 6  # bytes of characters cut at the two ends of a split, at most three each
CHARACTERS_PER_TOKEN = 16  # of a text that are read for each token needed
MOST_UNKNOWN = 0.1  # share of unknown tokens above which tokenizer and text do not match
VALIDATION_SPLIT = "the validation split"
SPECIAL = "without_special"  # a third set of positions, where special tokens occur


class InputWindows(NamedTuple):
    """Windows that a model reads, of a text, of pictures or of sound, and the picked positions."""

    probe: Probe  # tokens_GWT are tokens, or inputs (G, W, …); picks are of all sets of positions
    positions: tuple[str, ...]
    fixed_T: np.ndarray  # True where every window has a special token
    context: int  # positions of a window
    attributes: dict[str, Any]  # what tables record
    tokens_per_position: int = 1
    # only for a text
    rows_NT: np.ndarray | None = None  # all windows of the text, in order
    counts_V: np.ndarray | None = None  # count of each token in the text
    tokens_per_byte: float | None = None
    mask_token: int | None = None

    @property
    def largest_token(self) -> int:
        """The largest token of the text, of the frame of each window, and the mask token."""
        return max(len(self.counts_V) - 1, int(self.probe.tokens_GWT.max()), self.mask_token or 0)


def validation_split(corpus: Corpus) -> bytes:
    """Return the validation split as it stands in the file."""
    return np.frombuffer(corpus.vocabulary, np.uint8)[corpus.valid].tobytes()


def validation_text(corpus: Corpus) -> str:
    """Decode the validation split."""
    return decode(validation_split(corpus))


def decode(content: bytes) -> str:
    """Decode the beginning of a text; bytes that are not UTF-8 are dropped and reported."""
    content = content[:LONGEST_SPLIT]
    text = content.decode(errors="ignore")
    if (lost := len(content) - len(text.encode())) > CUT_BYTES:
        print(f"{lost:,} of {len(content):,} bytes are not UTF-8 and left out")
    return text


def needed_tokens(config: PretrainedConfig, tokens_per_position: int = 1) -> int:
    """Return how many tokens the windows of all batches have."""
    measure, context = config.measure, config.window // tokens_per_position
    windows = measure.folds * -(-(measure.points // measure.folds) // max(context - 1, 1))
    return measure.batches * windows * config.window


def check_length(characters: int, config: PretrainedConfig) -> None:
    """Refuse, before anything is read, a text that is too short whatever the tokenizer is.

    A character is at most four bytes, and a token at least one.
    """
    if 4 * characters < (needed := needed_tokens(config)):
        measure, names = config.measure, ("measure.points", "measure.batches")
        what = f"the text has {characters:,} characters; measure.points={measure.points} x "
        what += f"measure.batches={measure.batches} in windows of {config.window} need {needed:,}"
        advice = "lower measure.points, measure.batches or window, or take a longer text"
        raise SettingError(f"{what} tokens: {advice}", *names)


def cut_token_windows(
    text: str,
    tokenizer: Any,
    config: PretrainedConfig,
    tokens_per_position: int = 1,
    name: str = VALIDATION_SPLIT,
) -> InputWindows:
    """Cut windows of tokens, as sources/evaluation_windows.py does for our own models.

    With `special_tokens`, every window begins and ends as a text does. Special tokens are
    recognized by their ids anywhere, since a text may spell one. `name` is that of the text, in
    messages and tables. UserError where the text is too short, or does not match the tokenizer.
    """
    window, measure = config.window, config.measure
    if window % tokens_per_position or window < 2 * tokens_per_position:
        what = f"it must be a multiple of {tokens_per_position}, the tokens of a position"
        raise UserError(f"window is {window}; {what}")
    before, after = special_frame(tokenizer) if config.special_tokens else ([], [])
    inner = window - len(before) - len(after)
    if inner < 2:
        least = 2 + window - inner
        raise UserError(f"window is {window}; with special tokens it must be at least {least}")
    ids_N, unknown_share = encode_text(text, tokenizer)
    count = ids_N.size // inner
    rows_NT = np.empty((count, window), np.int32)
    rows_NT[:, : len(before)], rows_NT[:, window - len(after) :] = before, after
    fixed_T = np.ones(window, bool)
    fixed_T[len(before) : window - len(after)] = False
    rows_NT[:, ~fixed_T] = ids_N[: count * inner].reshape(count, inner)
    probe = _draw_probe(rows_NT, tokens_per_position, measure, f"{name} has {ids_N.size} tokens")
    # also where the unknown token frames a text, as in OPT
    special_GWT = np.isin(probe.tokens_GWT, special_ids(tokenizer)) | fixed_T
    shuffled_GWT, rng = np.array(probe.tokens_GWT), np.random.default_rng(measure.seed)
    for tokens_WT, special_WT in zip(shuffled_GWT, special_GWT, strict=True):
        tokens_WT[~special_WT] = rng.permuted(tokens_WT[~special_WT])
    probe, positions = probe._replace(shuffled_GWT=shuffled_GWT), POSITION_SETS
    if special_GWT.any():
        special_GWP = tokens_at_positions(special_GWT, tokens_per_position).any(-1)
        positions, probe = add_ordinary(probe, special_GWP, measure)
    batches, windows, _ = probe.tokens_GWT.shape
    first_tokens = tokenizer.convert_ids_to_tokens(probe.tokens_GWT[0, 0, :8].tolist())
    density = ids_N.size / len(text.encode())
    attributes = {
        "windows": f"{windows} windows × {batches} batches of {window} tokens of {name}, "
        "packed, without padding",
        "first_tokens": " | ".join(first_tokens),
        "twice_first": int((probe.tokens_GWT[:, :, 0] == probe.tokens_GWT[:, :, 1]).sum()),
        "special_tokens": f"{int(special_GWT.sum())} of {special_GWT.size} positions",
        "unknown_tokens": unknown_share,
        "tokens_per_byte": density,
    }
    return InputWindows(
        probe,
        positions,
        fixed_T,
        window // tokens_per_position,
        attributes,
        tokens_per_position,
        rows_NT,
        np.bincount(ids_N),
        density,
        tokenizer.mask_token_id,
    )


def _draw_probe(
    rows_NT: np.ndarray, tokens_per_position: int, measure: MeasureConfig, text: str
) -> Probe:
    """Draw windows, and picks among their positions."""
    length = rows_NT.shape[1] // tokens_per_position
    numbers_N = np.arange(len(rows_NT) * length)
    unit = "" if tokens_per_position == 1 else f" positions of {tokens_per_position} tokens"
    have = f"{text}, {len(rows_NT)} windows of {length}{unit}"
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    advice = "window, or take a longer text"
    probe = make_probe(numbers_N, length, *sizes, have=have, advice=advice)
    return probe._replace(tokens_GWT=rows_NT[probe.tokens_GWT[:, :, 0] // length])


def encode_text(text: str, tokenizer: Any) -> tuple[np.ndarray, float]:
    """Return the tokens of a text, and the share that the tokenizer does not know."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    ids_N = np.asarray(ids, np.int32)
    return ids_N, check_unknown(ids_N, tokenizer)


def check_unknown(ids_N: np.ndarray, tokenizer: Any) -> float:
    """Return the share of unknown tokens; UserError where it is too large."""
    unknown = unknown_token(tokenizer)
    share = float((ids_N == unknown).mean()) if unknown is not None and ids_N.size else 0.0
    if share > MOST_UNKNOWN:
        what = f"{share:.0%} of the text are unknown to the tokenizer"
        raise UserError(f"{what}; pass the model's tokenizer, or another text")
    return share


def tokens_at_positions(tokens_T: np.ndarray, tokens_per_position: int) -> np.ndarray:
    """Return the tokens at each position, (…, T) -> (…, position, token), as CANINE joins them.

    Position 0 is the first token alone; each later position holds several tokens, from the first
    token on. As many tokens at the end have no position.
    """
    if tokens_per_position == 1:
        return tokens_T[..., None]
    joined = tokens_T[..., :-tokens_per_position]
    joined = joined.reshape(*tokens_T.shape[:-1], -1, tokens_per_position)
    first = np.repeat(tokens_T[..., :1, None], tokens_per_position, axis=-1)
    return np.concatenate([first, joined], axis=-2)


def unknown_token(tokenizer: Any) -> int | None:
    """Return the token of unknown text, unless it has another role too."""
    names = "bos", "eos", "sep", "cls", "pad", "mask"
    others = {getattr(tokenizer, f"{name}_token_id") for name in names}
    return None if tokenizer.unk_token_id in others else tokenizer.unk_token_id


def special_ids(tokenizer: Any) -> list[int]:
    """Return the ids of special tokens, also of those without a role, but not of unknown text."""
    tokens = getattr(tokenizer, "added_tokens_decoder", {})
    added = {number for number, token in tokens.items() if token.special}
    return sorted({*tokenizer.all_special_ids, *added} - {unknown_token(tokenizer)})


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before a text and after it."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return framed[:start], framed[start + len(bare) :]
    raise UserError("the tokenizer changes a text by special tokens; leave special_tokens out")


def check_frames(tokenizer: Any, texts: list[str]) -> None:
    """Refuse texts that have the tokenizer's begin or end; warn where it has lost them."""
    before, after = special_frame(tokenizer)
    begin, end = (tokenizer.convert_ids_to_tokens(ids) for ids in (before[:1], after[-1:]))
    for number, text in enumerate(texts):
        for verb, token, found in (
            ("begins", begin, begin and text.lstrip().startswith(begin[0])),
            ("ends", end, end and text.rstrip().endswith(end[0])),
        ):
            if found:
                why = f"{verb} with {token[0]}, which special_tokens=True adds"
                raise UserError(f"texts: number {number} {why}; remove it from the text")
    settings = _stored_settings(tokenizer)
    for name, ids in (("bos", before), ("eos", after)):
        own = getattr(tokenizer, f"{name}_token_id", None)
        if settings.get(f"add_{name}_token") and own is not None and own not in ids:
            what = (
                f"tokenizer_config.json has add_{name}_token, but the tokenizer adds no such token"
            )
            advice = "transformers 5 reads tokenizer.json alone"
            warnings.warn(f"{what}: {advice}; set its post_processor", stacklevel=5)


def _stored_settings(tokenizer: Any) -> dict[str, Any]:
    """Read the tokenizer_config.json that a tokenizer was loaded from, some of which is dropped."""
    try:
        name = tokenizer.name_or_path
        return get_tokenizer_config(name, local_files_only=True) if name else {}
    except (AttributeError, OSError, ValueError):  # a tokenizer without a file
        return {}


def set_window(text: str, tokenizer: Any, config: PretrainedConfig) -> PretrainedConfig:
    """Set the window to the mean tokens of `characters` characters, with special tokens if any."""
    if config.characters is None:
        return config
    part = text[:SAMPLE]
    tokens = len(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])
    frame = sum(map(len, special_frame(tokenizer))) if config.special_tokens else 0
    length = round(config.characters * tokens / max(len(part), 1)) + frame
    return replace(config, {"window": length})


def add_ordinary(
    probe: Probe, special_GWP: np.ndarray, measure: MeasureConfig
) -> tuple[tuple[str, ...], Probe]:
    """Add the set of positions without special tokens, equally many per fold as in the others."""
    rng, share = np.random.default_rng(measure.seed), measure.points // measure.folds
    special_GJP = special_GWP.reshape(len(special_GWP), measure.folds, -1)
    picks = np.empty((len(special_GWP), measure.folds, share), np.int32)
    for batch, fold in np.ndindex(*picks.shape[:2]):
        ordinary = np.flatnonzero(~special_GJP[batch, fold])
        if len(ordinary) < share:
            advice = f"lower measure.points to {measure.folds * len(ordinary)}"
            what = f"a fold has {len(ordinary)} of {share} ordinary tokens"
            raise SettingError(f"{what}; {advice}", "measure.points")
        picks[batch, fold] = fold * special_GJP.shape[2] + rng.permutation(ordinary)[:share]
    picks_SGP = np.concatenate([probe.picks_SGP, picks.reshape(1, len(special_GWP), -1)])
    return (*POSITION_SETS, SPECIAL), probe._replace(picks_SGP=picks_SGP)
