import pytest

from anisoscope.training import loop, replay, train_program


@pytest.fixture(autouse=True)
def programs_are_shared(monkeypatch):
    """Trainings of equal settings and text use one compiled program, as seeds that are trained
    together do.
    """

    def make(config, corpus):
        key = config, corpus.sha256, corpus.train.size, corpus.valid.size, corpus.test.size
        if key not in PROGRAMS:
            if len(PROGRAMS) == 8:
                PROGRAMS.clear()
            PROGRAMS[key] = train_program.make_train_program(config, corpus)
        return PROGRAMS[key]

    for module in (loop, replay):
        monkeypatch.setattr(module, "make_train_program", make)


PROGRAMS = {}
