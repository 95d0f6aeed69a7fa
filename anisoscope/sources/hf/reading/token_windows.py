"""A text as a model reads it: equal windows of tokens without padding, and the positions of them
that are measured.

Letters: G probe batches, S sets of positions.
"""

from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data.corpus import Corpus
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, make_probe
from anisoscope.utils.errors import UserError

LONGEST = 8_000_000  # bytes of the validation split that are read
SAMPLE = 1_000_000  # characters that tell how many of them a token has
ENDS = 6  # bytes of a character that the ends of a split may cut, three at each
UNKNOWN = 0.1  # share of unknown tokens from which on the tokenizer does not fit the text
SPLIT = "the validation split"
SPECIAL = "without_special"  # a third set of positions, where special tokens occur


class Windows(NamedTuple):
    probe: Probe  # picks of all sets of positions
    positions: tuple[str, ...]
    fixed_T: np.ndarray  # where every window has a special token
    rate: int  # tokens that share a position of what is measured: see `at_positions`
    counts_V: np.ndarray  # how often each token is in the text
    tokens_per_byte: float
    mask_token: int | None
    about: dict[str, Any]  # what is recorded
    rows_NT: np.ndarray | None = None  # all windows that the text has, one after another

    @property
    def places_GWT(self) -> np.ndarray:
        """The first token of every position."""
        return tokens_at_positions(self.probe.tokens_GWT, self.rate)[..., 0]

    def in_words(self) -> list[str]:
        """What a reader should know before the long part begins."""
        return [
            f"windows: {self.about['windows']}; the first begins {self.about['first_tokens']}",
            f"special tokens: {self.about['special_tokens']}",
            "windows that begin with one token twice, whose second vector may be another first: "
            f"{self.about['twice_first']}",
        ]


def validation_text(corpus: Corpus) -> str:
    """The validation split; bytes that are no UTF-8 are left out, and a line says how many."""
    content = np.frombuffer(corpus.vocabulary, np.uint8)[corpus.valid[:LONGEST]].tobytes()
    text = content.decode(errors="ignore")
    if (lost := len(content) - len(text.encode())) > ENDS:
        print(f"{lost:,} of {len(content):,} bytes are no UTF-8, and left out")
    return text


def make_windows(
    text: str,
    tokenizer: Any,
    window: int,
    special: bool,
    measure: MeasureConfig,
    rate: int = 1,
    called: str = SPLIT,
) -> Windows:
    """Windows as for our own models (sources/probe.py), of tokens; with `special`, each begins and
    ends as a text does.

    Special tokens are known by their ids, wherever they are: a text may spell one. Points are
    picked among positions, window / `rate` of a window. The text is `called` so in messages and
    tables.
    """
    if window % rate or window < 2 * rate:
        raise UserError(
            f"window is {window}; this model joins {rate} tokens, so it must be a multiple of {rate}"
        )
    before, after = special_frame(tokenizer) if special else ([], [])
    inner = window - len(before) - len(after)
    if inner < 2:
        raise UserError(
            f"window is {window}; with special tokens it must be at least {2 + window - inner}"
        )
    unknown = unknown_token(tokenizer)
    ids_N, share = _known_tokens(text, tokenizer, unknown)
    rows_NT = ids_N[: ids_N.size // inner * inner].reshape(-1, inner)
    rows_NT = np.concatenate([np.broadcast_to(before, (len(rows_NT), len(before))), rows_NT,
                              np.broadcast_to(after, (len(rows_NT), len(after)))], axis=1).astype(np.int32)  # fmt: skip
    try:
        places_N, length = np.arange(len(rows_NT) * (window // rate)), window // rate
        probe = make_probe(
            places_N, length, measure.points, measure.batches, measure.folds, measure.seed
        )
    except UserError as error:
        what = "tokens" if rate == 1 else f"positions of {rate} tokens"
        said = (
            str(error)
            .replace("characters", what)
            .replace("model.context", "window")
            .replace(SPLIT, called)
        )
        raise UserError(said) from error
    probe = probe._replace(tokens_GWT=rows_NT[probe.tokens_GWT[:, :, 0] // length])
    fixed_T = np.zeros(window, bool)
    fixed_T[: len(before)] = True
    fixed_T[window - len(after) :] = True
    special_GWT = np.isin(probe.tokens_GWT, sorted(set(tokenizer.all_special_ids) - {unknown}))
    special_GWT |= fixed_T  # also where what frames a text is the unknown token, as of OPT
    probe = probe._replace(shuffled_GWT=_shuffled(probe.tokens_GWT, special_GWT, measure.seed))
    positions = POSITION_SETS
    if special_GWT.any():
        positions = (*POSITION_SETS, SPECIAL)
        picks_GP = pick_ordinary(tokens_at_positions(special_GWT, rate).any(-1), measure)
        probe = probe._replace(picks_SGP=np.concatenate([probe.picks_SGP, picks_GP[None]]))
    density = ids_N.size / len(text.encode())
    about = {
        "windows": f"{probe.tokens_GWT.shape[1]} windows × {probe.tokens_GWT.shape[0]} batches of {window} tokens of "
        f"{called}, packed, without padding",
        "first_tokens": " | ".join(
            tokenizer.convert_ids_to_tokens(probe.tokens_GWT[0, 0, :8].tolist())
        ),
        "twice_first": int((probe.tokens_GWT[:, :, 0] == probe.tokens_GWT[:, :, 1]).sum()),
        "special_tokens": _words(int(special_GWT.sum()), special_GWT.size, fixed_T),
        "unknown_tokens": share,
        "tokens_per_byte": density,
    }
    counts_V, mask = np.bincount(ids_N), tokenizer.mask_token_id
    return Windows(probe, positions, fixed_T, rate, counts_V, density, mask, about, rows_NT)


def _known_tokens(text: str, tokenizer: Any, unknown: int | None) -> tuple[np.ndarray, float]:
    """The tokens of a text, and which share of them the tokenizer does not know; UserError where
    that is too large.
    """
    ids_N = np.asarray(
        tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int32
    )
    share = float((ids_N == unknown).mean()) if unknown is not None and ids_N.size else 0.0
    if share > UNKNOWN:
        raise UserError(
            f"{share:.0%} of the text are unknown to the tokenizer, at most {UNKNOWN:.0%} may be: "
            "this text is not the model's, or this tokenizer is not"
        )
    return ids_N, share


def tokens_at_positions(tokens_T: np.ndarray, rate: int) -> np.ndarray:
    """What stands at each position, (…, T) -> (…, position, token): as CANINE joins characters.

    Position 0 is token 0 alone, and each further one `rate` tokens, from token 0 on. The last
    `rate` tokens have none.
    """
    if rate == 1:
        return tokens_T[..., None]
    joined = tokens_T[..., :-rate].reshape(*tokens_T.shape[:-1], -1, rate)
    return np.concatenate([np.repeat(tokens_T[..., :1, None], rate, axis=-1), joined], axis=-2)


def unknown_token(tokenizer: Any) -> int | None:
    """The token that stands for what the tokenizer does not know; none where it also begins or ends
    a text, say.
    """
    others = {
        getattr(tokenizer, f"{name}_token_id")
        for name in ("bos", "eos", "sep", "cls", "pad", "mask")
    }
    return None if tokenizer.unk_token_id in others else tokenizer.unk_token_id


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before a text and after it."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed = tokenizer("a")["input_ids"]
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare:
            return framed[:start], framed[start + len(bare) :]
    raise UserError(
        "the tokenizer changes a text when it adds special tokens; leave special_tokens out"
    )


def window_length(text: str, tokenizer: Any, characters: int, special: bool) -> int:
    """As many tokens as so many characters of the text have in the mean, and the special ones
    around them.
    """
    part = text[:SAMPLE]
    tokens = len(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])
    return round(characters * tokens / max(len(part), 1)) + (
        sum(map(len, special_frame(tokenizer))) if special else 0
    )


def unigram_entropy(counts_V: np.ndarray) -> float:
    """Entropy in bits of the frequencies of tokens: what a model must beat that knows a text."""
    shares_V = counts_V[counts_V > 0] / counts_V.sum()
    return float(-(shares_V * np.log2(shares_V)).sum())


def _shuffled(tokens_GWT: np.ndarray, special_GWT: np.ndarray, seed: int) -> np.ndarray:
    """The tokens of a batch in random order; special ones stay in their places, so that no other
    place has one.
    """
    mixed, rng = np.array(tokens_GWT), np.random.default_rng(seed)
    for tokens_WT, special_WT in zip(mixed, special_GWT, strict=True):
        tokens_WT[~special_WT] = rng.permuted(tokens_WT[~special_WT])
    return mixed


def pick_ordinary(special_GWT: np.ndarray, measure: MeasureConfig) -> np.ndarray:
    """Positions without special tokens, as many of each fold as of the other sets."""
    rng, share = np.random.default_rng(measure.seed), measure.points // measure.folds
    special_GJP = special_GWT.reshape(len(special_GWT), measure.folds, -1)
    picks = np.empty((len(special_GWT), measure.folds, share), np.int32)
    for batch, fold in np.ndindex(*picks.shape[:2]):
        ordinary = np.flatnonzero(~special_GJP[batch, fold])
        if len(ordinary) < share:
            most = measure.folds * len(ordinary)
            raise UserError(
                f"{len(ordinary)} tokens of a fold are no special ones; lower measure.points to {most}"
            )
        picks[batch, fold] = fold * special_GJP.shape[2] + rng.permutation(ordinary)[:share]
    return picks.reshape(len(special_GWT), -1)


def _words(count: int, size: int, fixed_T: np.ndarray) -> str:
    if not count:
        return "none in any window: there is no set of positions without them"
    where = f"; {int(fixed_T.sum())} begin and end every window" if fixed_T.any() else ""
    return f"{count} of {size} positions{where}"
