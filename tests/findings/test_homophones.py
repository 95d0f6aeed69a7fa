"""Texts with homophones: what is a function of them, and what the choice costs."""

import numpy as np
import pytest

from findings.scripts.homophones import (
    coarsen,
    entropy_bits,
    homophone_bits,
    share_symbols,
    write_symbols,
)

SHARES = [0.3, 0.2] + [0.5 / 7] * 7
TEXT = (np.random.default_rng(1).choice(9, 40_000, p=SHARES) + 65).astype(np.uint8).tobytes()


@pytest.mark.parametrize("symbols", [7, 24], ids=["natural", "flattened"])
def test_the_characters_are_a_function_of_the_symbols_and_the_choice_costs_what_is_said(symbols):
    character_N = coarsen(TEXT, 6)
    share_C = share_symbols(np.bincount(character_N), symbols)
    symbol_N = write_symbols(character_N, share_C)
    back = np.repeat(np.arange(7), share_C)
    assert np.array_equal(back[symbol_N - 1], character_N)
    assert np.unique(symbol_N).tolist() == list(range(1, symbols + 1))
    extra = entropy_bits(symbol_N) - entropy_bits(character_N)
    assert extra == pytest.approx(homophone_bits(character_N, share_C), abs=2e-3)


def test_frequencies_are_flattened_and_rare_bytes_are_joined():
    character_N = coarsen(TEXT, 6)
    assert np.bincount(character_N)[:6].tolist() == sorted(np.bincount(character_N)[:6])[::-1]
    assert (character_N == 6).sum() == len(TEXT) - sum(sorted(map(TEXT.count, range(65, 74)))[-6:])
    share_C = share_symbols(np.array([600, 200, 100]), 9)
    assert share_C.tolist() == [6, 2, 1]
