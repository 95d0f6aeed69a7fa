"""A program compiled in a thread of its own: waited for where all goes well, and left alone where not."""

import threading

import pytest

from anisoscope.cli import precompile, process
from anisoscope.measurement.sources import checkpoints
from anisoscope.utils.errors import UNSTOPPABLE, RunError
from anisoscope.utils.stop import Stop
from tests import tiny


@pytest.fixture
def compiler(monkeypatch):
    """Compiles until `done` is set; `begun` holds what it was asked for."""
    ended()  # also those of tests before
    done, begun = threading.Event(), []
    monkeypatch.setattr(checkpoints, "precompile", lambda *asked: (begun.append(asked), done.wait(60)))
    yield begun, done
    done.set()
    ended()


def ended():
    for thread in threading.enumerate():
        if thread.name == UNSTOPPABLE:
            thread.join()


def running():
    return any(thread.name == UNSTOPPABLE for thread in threading.enumerate())


def test_it_is_waited_for_at_the_end(compiler, tmp_path, capsys):
    begun, done = compiler
    config, corpus = tiny.config(), tiny.corpus()
    with precompile.compiling(config, corpus, tmp_path, Stop()):
        threading.Timer(0.3, done.set).start()
    assert begun == [(config, corpus)]
    assert not running()
    assert "waiting for the program that measures" in capsys.readouterr().out


def test_an_error_and_a_stop_do_not_wait(compiler, tmp_path):
    with pytest.raises(RunError), precompile.compiling(tiny.config(), tiny.corpus(), tmp_path, Stop()):
        raise RunError("not finite")
    assert running()
    stop = Stop()
    with precompile.compiling(tiny.config(), tiny.corpus(), tmp_path, stop):
        stop.asked = True
    assert running()


def test_a_run_that_is_trained_compiles_nothing(compiler, tmp_path):
    (tmp_path / "test.json").write_text("{}")
    with precompile.compiling(tiny.config(), tiny.corpus(), tmp_path, Stop()):
        assert not compiler[0]


def test_a_process_ends_without_a_compiler_that_is_at_work(compiler, tmp_path, monkeypatch):
    codes = []
    monkeypatch.setattr(process.os, "_exit", codes.append)
    with pytest.raises(SystemExit, match="2"):
        process.end(2)
    assert not codes
    for code in (1, 130):  # threads that a failed save left behind; an interruption
        with pytest.raises(SystemExit):
            process.end(code)  # `os._exit` does not return where it is not replaced
    stop = Stop()
    with precompile.compiling(tiny.config(), tiny.corpus(), tmp_path, stop):
        stop.asked = True
    with pytest.raises(SystemExit):
        process.end(0)
    assert codes == [1, 130, 0]
