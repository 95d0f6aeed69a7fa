import types

import numpy as np
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.sources.hf.token_windows import (
    make_windows,
    validation_text,
)
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models

MEASURE = MeasureConfig(points=64, batches=2, folds=2)


def test_windows_are_packed_and_hold_no_special_token():
    found = make_windows(
        tiny_models.text(6000), tiny_models.tokenizer(framed=True), 16, False, MEASURE
    )
    assert found.positions == ("all", "without_first_token")
    assert found.probe.tokens_GWT.shape == (2, 6, 16)
    assert found.probe.tokens_GWT.min() >= len(tiny_models.SPECIAL)
    assert found.attributes["special_tokens"] == "0 of 192 positions"
    spelled = tiny_models.tokenizer().decode(found.probe.tokens_GWT[0, 0].tolist()).replace(" ", "")
    assert spelled in tiny_models.text(6000).replace(" ", "")


def test_windows_begin_and_end_as_a_text_does():
    found = make_windows(
        tiny_models.text(6000), tiny_models.tokenizer(framed=True), 16, True, MEASURE
    )
    begin, end = tiny_models.SPECIAL.index("<s>"), tiny_models.SPECIAL.index("</s>")
    for tokens_GWT in (found.probe.tokens_GWT, found.probe.shuffled_GWT):
        assert (tokens_GWT[:, :, 0] == begin).all()
        assert (tokens_GWT[:, :, -1] == end).all()
        assert tokens_GWT[:, :, 1:-1].min() >= len(tiny_models.SPECIAL)
    assert found.fixed_T.nonzero()[0].tolist() == [0, 15]
    assert found.positions[-1] == "without_special"
    picked = found.probe.tokens_GWT.reshape(2, -1)
    for batch in range(2):
        ids = picked[batch][found.probe.picks_SGP[2, batch]]
        assert ids.min() >= len(tiny_models.SPECIAL)
        assert len(set(found.probe.picks_SGP[2, batch])) == 64
        # of their own fold
        assert (found.probe.picks_SGP[2, batch].reshape(2, 32) // (3 * 16) == [[0], [1]]).all()


def test_special_tokens_are_known_by_their_ids_wherever_they_are():
    """A text may spell one, as enwik8 spells <s>."""
    text = tiny_models.text(6000).replace("a", "<s>")
    found = make_windows(text, tiny_models.tokenizer(), 16, False, MEASURE)
    assert found.positions[-1] == "without_special"
    assert not found.fixed_T.any()
    for tokens_GWT in (found.probe.tokens_GWT, found.probe.shuffled_GWT):
        for batch in range(2):
            assert tokens_GWT.reshape(2, -1)[batch][found.probe.picks_SGP[2, batch]].min() >= len(
                tiny_models.SPECIAL
            )


def test_a_special_token_that_is_the_unknown_one_too_is_special_where_it_frames_a_text_or_a_text_spells_it():
    """As of OPT, and <|endoftext|> of GPT-2."""
    tokenizer = tiny_models.tokenizer(framed=True)
    tokenizer.unk_token = "<s>"
    found = make_windows(tiny_models.text(6000), tokenizer, 16, True, MEASURE)
    assert found.positions[-1] == "without_special"
    assert (found.probe.picks_SGP[2] % 16 != 0).all()
    tokenizer = tiny_models.tokenizer()
    tokenizer.unk_token = tokenizer.eos_token = tokenizer.bos_token = "<s>"
    found = make_windows(tiny_models.text(6000).replace("a", "<s>"), tokenizer, 16, False, MEASURE)
    assert found.positions[-1] == "without_special"
    assert found.attributes["unknown_tokens"] == 0


def test_bytes_that_are_no_text_are_told(capsys):
    content = np.frombuffer("café ".encode("latin-1") * 400, np.uint8)
    vocabulary = np.unique(content)
    corpus = types.SimpleNamespace(
        vocabulary=vocabulary.tobytes(), valid=np.searchsorted(vocabulary, content)
    )
    assert validation_text(corpus) == "caf " * 400
    assert capsys.readouterr().out == "400 of 2,000 bytes are not UTF-8 and left out\n"


def test_shuffled_windows_hold_the_same_tokens():
    found = make_windows(tiny_models.text(6000), tiny_models.tokenizer(), 16, False, MEASURE)
    for one, other in zip(found.probe.tokens_GWT, found.probe.shuffled_GWT, strict=True):
        assert (one != other).mean() > 0.5
        np.testing.assert_array_equal(np.sort(one.ravel()), np.sort(other.ravel()))


def test_a_text_that_is_not_the_models_is_refused():
    with pytest.raises(UserError, match="unknown to the tokenizer"):
        make_windows(tiny_models.text(6000).upper(), tiny_models.tokenizer(), 16, False, MEASURE)
    with pytest.raises(UserError, match=r"592 tokens, 37 windows of 16.*lower measure.points"):
        make_windows(
            tiny_models.text(600), tiny_models.tokenizer(), 16, False, MeasureConfig(points=4096)
        )
