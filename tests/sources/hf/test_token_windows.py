import json
import types

import numpy as np
import pytest
import transformers
from tokenizers import AddedToken

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.hf.token_windows import check_frames, cut_token_windows, validation_text
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models

MEASURE = MeasureConfig(points=64, batches=2, folds=2)


def make(text=None, special=False, **changes):
    tokenizer = tiny_models.tokenizer(framed=True)
    for name, token in changes.items():
        setattr(tokenizer, name, token)
    config = PretrainedConfig(measure=MEASURE, window=16, special_tokens=special)
    return cut_token_windows(text or tiny_models.text(6000), tokenizer, config)


def picked(found, batch):
    """Tokens of the third set of positions."""
    return found.probe.tokens_GWT.reshape(2, -1)[batch][found.probe.picks_SGP[2, batch]]


def test_windows_are_packed_and_hold_no_special_token():
    found = make()
    assert found.positions == ("all", "without_first_token")
    assert found.probe.tokens_GWT.shape == (2, 6, 16)
    assert found.probe.tokens_GWT.min() >= len(tiny_models.SPECIAL)
    assert found.attributes["special_tokens"] == "0 of 192 positions"
    spelled = tiny_models.tokenizer().decode(found.probe.tokens_GWT[0, 0].tolist()).replace(" ", "")
    assert spelled in tiny_models.text(6000).replace(" ", "")
    for one, other in zip(found.probe.tokens_GWT, found.probe.shuffled_GWT, strict=True):
        assert (one != other).mean() > 0.5
        np.testing.assert_array_equal(np.sort(one.ravel()), np.sort(other.ravel()))


def test_windows_begin_and_end_as_a_text_does():
    found = make(special=True)
    begin, end = tiny_models.SPECIAL.index("<s>"), tiny_models.SPECIAL.index("</s>")
    for tokens_GWT in (found.probe.tokens_GWT, found.probe.shuffled_GWT):
        assert (tokens_GWT[:, :, 0] == begin).all()
        assert (tokens_GWT[:, :, -1] == end).all()
        assert tokens_GWT[:, :, 1:-1].min() >= len(tiny_models.SPECIAL)
    assert found.fixed_T.nonzero()[0].tolist() == [0, 15]
    assert found.positions[-1] == "without_special"
    for batch in range(2):
        assert picked(found, batch).min() >= len(tiny_models.SPECIAL)
        picks_P = found.probe.picks_SGP[2, batch]
        assert len(set(picks_P)) == 64
        assert (picks_P.reshape(2, 32) // (3 * 16) == [[0], [1]]).all()  # of their own fold


def test_special_tokens_are_known_by_their_ids_wherever_they_are():
    """A text may spell one, as enwik8 spells <s>; it may be the unknown one too, as in OPT and GPT-2."""
    spells = tiny_models.text(6000).replace("a", "<s>")
    found = make(spells)
    assert found.positions[-1] == "without_special"
    assert not found.fixed_T.any()
    assert min(picked(found, batch).min() for batch in range(2)) >= len(tiny_models.SPECIAL)
    found = make(special=True, unk_token="<s>")
    assert found.positions[-1] == "without_special"
    assert (found.probe.picks_SGP[2] % 16 != 0).all()
    found = make(spells, unk_token="<s>", eos_token="<s>", bos_token="<s>")
    assert found.positions[-1] == "without_special"
    assert found.attributes["unknown_tokens"] == 0


def test_special_tokens_without_a_role_are_known_too():
    """As the tokens of a chat, which stand in added_tokens_decoder alone."""
    tokenizer = tiny_models.tokenizer()
    tokenizer.add_tokens([AddedToken("<|turn|>", special=True), AddedToken("word", special=False)])
    config = PretrainedConfig(measure=MEASURE, window=16)
    text = tiny_models.text(6000).replace("a", "<|turn|>").replace("b", "word")
    found = cut_token_windows(text, tokenizer, config)
    turn, word = tokenizer.convert_tokens_to_ids(["<|turn|>", "word"])
    assert found.positions[-1] == "without_special"
    special = int((found.probe.tokens_GWT == turn).sum())
    assert found.attributes["special_tokens"].startswith(f"{special} of ")
    kept = np.concatenate([picked(found, batch) for batch in range(2)])
    assert turn not in kept
    assert word in kept


@pytest.mark.parametrize(
    ("text", "words"),
    [("<s>a", "number 1 begins with <s>"), ("a</s> ", "number 1 ends with </s>")],
)
def test_texts_that_have_the_frame_already_are_refused(text, words):
    with pytest.raises(UserError, match=f"{words}, which special_tokens=True adds; remove it"):
        check_frames(tiny_models.tokenizer(framed=True), ["a", text])


def test_an_end_that_the_settings_have_and_the_tokenizer_has_not_is_told(tmp_path):
    """transformers 5 reads tokenizer.json alone."""
    tiny_models.tokenizer().save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_eos_token": True}))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="has add_eos_token, but the tokenizer adds no such token"):
        check_frames(tokenizer, ["a"])


def test_bytes_that_are_no_text_are_told(capsys):
    content = np.frombuffer("café ".encode("latin-1") * 400, np.uint8)
    vocabulary = np.unique(content)
    valid = np.searchsorted(vocabulary, content)
    corpus = types.SimpleNamespace(vocabulary=vocabulary.tobytes(), valid=valid)
    assert validation_text(corpus) == "caf " * 400
    assert capsys.readouterr().out == "400 of 2,000 bytes are not UTF-8 and left out\n"


def test_a_text_that_is_not_the_models_or_too_short_is_refused():
    with pytest.raises(UserError, match="unknown to the tokenizer"):
        make(tiny_models.text(6000).upper())
    with pytest.raises(UserError, match=r"180 tokens, 11 windows of 16.*lower measure.points"):
        make(tiny_models.text(180))
    with pytest.raises(UserError, match=r"has 9 tokens, 0 windows of 16"):
        make(tiny_models.text(9))
