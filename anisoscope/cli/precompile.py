"""The program that measures, compiled while the first run trains: training leaves all but one core nearly idle."""

import contextlib
import pathlib
import threading
from collections.abc import Iterator

import jax

from anisoscope.config.experiment import Config
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources import checkpoints
from anisoscope.training import finished
from anisoscope.utils.errors import UNSTOPPABLE
from anisoscope.utils.stop import Stop


@contextlib.contextmanager
def compiling(config: Config, corpus: Corpus, run: pathlib.Path, stop: Stop) -> Iterator[None]:
    """While one process trains on a CPU; at its end the compiler is waited for, unless a stop is asked for."""
    if finished.is_finished(run) or jax.process_count() > 1 or jax.default_backend() != "cpu":
        yield
        return

    def work() -> None:
        with contextlib.suppress(Exception):  # it is raised again where the program is used
            checkpoints.precompile(config, corpus)

    thread = threading.Thread(target=work, name=UNSTOPPABLE, daemon=True)
    thread.start()
    yield  # where this raises, the process ends without the compiler: process.py
    if thread.is_alive():
        print("waiting for the program that measures: it is being compiled")
    while thread.is_alive() and not stop.asked:
        thread.join(0.1)
