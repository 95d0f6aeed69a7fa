import functools

import pytest

from anisoscope.training import loop, train_program


class Text:
    """A corpus as a key: equal where it was made from the same seed and length."""

    def __init__(self, corpus):
        self.corpus, self.key = (
            corpus,
            (corpus.sha256, corpus.train.size, corpus.valid.size, corpus.test.size),
        )

    def __eq__(self, other):
        return self.key == other.key

    def __hash__(self):
        return hash(self.key)


@functools.lru_cache(maxsize=8)
def shared(config, text):
    return train_program.make_program(config, text.corpus)


@pytest.fixture(autouse=True)
def programs_are_shared(monkeypatch):
    """Trainings of equal settings and text use one compiled program, as seeds that are trained
    together do.
    """
    monkeypatch.setattr(loop, "make_program", lambda config, corpus: shared(config, Text(corpus)))
