"""A tokenizer whose tokens are the bytes of a text, as the files that transformers reads."""

from typing import Any

MASK = "[MASK]"
FILES = ("tokenizer.json", "tokenizer_config.json")


def files(vocabulary: bytes, context: int) -> dict[str, dict[str, Any]]:
    """{name: content}. Token i is the i-th byte; the last is [MASK], which bytes become that have
    no token.
    """
    letters = byte_letters()
    special = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    by_byte = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    pairs = {  # byte-pair encoding without a pair
        "type": "BPE",
        "dropout": None,
        "unk_token": MASK,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {letters[byte]: i for i, byte in enumerate(vocabulary)} | {MASK: len(vocabulary)},
        "merges": [],
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": len(vocabulary), "content": MASK} | special],
        "normalizer": None,
        "pre_tokenizer": by_byte,
        "post_processor": None,
        "decoder": by_byte,
        "model": pairs,
    }
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "mask_token": MASK,
        "unk_token": MASK,
    }
    return dict(zip(FILES, (whole, about), strict=True))


def byte_letters() -> list[str]:
    """The letter that byte-level tokenizers write for each byte: itself where it can be seen, else
    one from 256 on.
    """
    seen = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    hidden = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + hidden.index(byte)) for byte in range(256)]
