"""The program that measures, compiled while the first run trains: training leaves all but one core nearly idle."""

import contextlib
import pathlib
import threading
from collections.abc import Iterator

import jax

from data.corpus import Corpus
from experiments.config import Config
from sources import sweep


@contextlib.contextmanager
def compiling(config: Config, corpus: Corpus, run: pathlib.Path) -> Iterator[None]:
    """For the time of training. Nothing is done for a run that is trained already, as it may be measured, too.

    Left when the compiler is done, as no process can end before; the next start then finds what it has made.
    """
    if (run / "test.json").exists() or jax.process_count() > 1:  # several processes compile in the same order
        yield
        return

    def work() -> None:
        with contextlib.suppress(Exception):  # it is raised again where the program is used
            sweep.compile_ahead(config, corpus)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        if thread.is_alive():
            print("waiting for the program that measures: it is being compiled")
        thread.join()
