"""Two real processes of one cluster: all compute, the first one writes, and what one of them sees,
all act on.
"""

import json
import os
import signal
import socket

import pytest

from anisoscope.utils import processes
from anisoscope.utils.errors import Stopped
from anisoscope.utils.processes import Stop
from tests import cluster

WORK = """
import json, pathlib, sys
import jax
rank, port, folder = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
jax.distributed.initialize(f"localhost:{port}", 2, rank)
from anisoscope.training.log import Log
from anisoscope.utils import processes
from anisoscope.utils.errors import RunError, Stopped, UserError
from anisoscope.utils.progress import progress_bar
from anisoscope.utils.processes import Stop

def refuse():
    raise UserError("this folder is taken")

def told(work):
    try:
        work()
    except (Stopped, UserError, RunError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"

def each(to, steps=range(5), apart=True, fails=None, stop=Stop()):
    to.mkdir(exist_ok=True)
    def work(step, writes):
        words = f"{step // (step != fails)} by {rank}"
        if writes:
            (to / str(step)).write_text(words)
    files = {step: [to / str(step)] for step in steps}
    return told(lambda: processes.map_steps(files, work, "run", ("measure", "measuring"), stop, apart))

processes.PATIENCE = 0.3

processes.on_first(lambda: (folder / f"made_by_{rank}").touch())
log = Log(folder, -1)
log.write(0, "train", loss=1.5 + rank)
log.flush()
stop = Stop()
before = told(lambda: stop.check("after step 3"))
stop.requested = rank == 1
print(json.dumps({
    "first": processes.is_first(),
    "largest": processes.largest_over_processes(rank, -rank, 2.5),
    "quiet": progress_bar([], "measure", "checkpoint").disable,
    "refused": told(lambda: processes.on_first(refuse)),
    "stopped": [before, told(lambda: stop.check("after step 4"))],
    "shared": [
        each(folder / "apart"),
        each(folder / "together", apart=False),
        each(folder / "failed", fails=4),
        each(folder / "stopped", stop=stop),
        each(folder / f"own_disk_{rank}"),
        each(folder / "other_steps", steps=range(4 + rank)),
    ],
}))
"""


def test_two_processes_act_as_one(tmp_path):
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        port = str(unused.getsockname()[1])
    ended = cluster.run(*(["-c", WORK, rank, port, str(tmp_path)] for rank in "01"), devices=2)
    assert [process.returncode for process in ended] == [0, 0], [
        process.stderr for process in ended
    ]
    first, second = (json.loads(process.stdout.splitlines()[-1]) for process in ended)
    assert (first["first"], second["first"]) == (True, False)
    assert (first["quiet"], second["quiet"]) == (False, True)
    assert first["largest"] == second["largest"] == [1.0, 0.0, 2.5]
    assert first["refused"] == "UserError: this folder is taken"
    assert second["refused"] == "UserError: process 0 has failed; see its message"
    assert first["stopped"] == second["stopped"] == [None, "Stopped: after step 4"]
    assert sorted(path.name for path in tmp_path.glob("made_by_*")) == ["made_by_0"]
    assert [
        json.loads(line)["loss"] for line in (tmp_path / "train.jsonl").read_text().splitlines()
    ] == [1.5]
    check_shares(tmp_path, first["shared"], second["shared"])
    assert "run: measure: checkpoints per process: 3, 2\n" in ended[0].stdout


def check_shares(folder, first, second):
    """Five steps shared by two processes: what both were told, and which process wrote what."""

    def written(name):
        return {int(path.name): path.read_text() for path in (folder / name).iterdir()}

    assert first[:2] == second[:2] == [None, None]
    assert written("apart") == {0: "0 by 0", 1: "1 by 0", 2: "2 by 0", 3: "3 by 1", 4: "4 by 1"}
    assert set(written("together").values()) == {f"{step} by 0" for step in range(5)}
    assert first[2] == "RunError: process 1 has failed; see its message"
    assert second[2].startswith("ZeroDivisionError")
    assert sorted(written("failed")) == [0, 1, 3]  # the first did not go on alone
    assert first[3] == second[3] == "Stopped: run: stopped before measuring steps 0, 3"
    assert written("stopped") == {}
    shared = "--workdir must lie on a file system that all hosts see"
    unseen = "was written by another process and is not visible here"
    assert first[4] == f"UserError: {folder}/own_disk_0/3 {unseen}; {shared}"
    assert second[4] == f"UserError: {folder}/own_disk_1/0 {unseen}; {shared}"
    different = f"UserError: processes find different checkpoints or tables of run; {shared}"
    assert first[5] == second[5] == different
    assert written("other_steps") == {}


def test_parts_are_contiguous_and_the_first_the_longest():
    assert processes.parts([0, 1, 2, 4, 8, 16, 32], 3) == [[0, 1, 2], [4, 8], [16, 32]]
    assert processes.parts([5], 3) == [[5], [], []]
    assert processes.parts([], 2) == [[], []]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_is_as_before(signum, capfd):
    def handlers():
        return [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]

    before = handlers()
    with Stop() as stop:
        assert handlers() != before
    assert handlers() == before  # the work is done
    with Stop() as stop:
        stop.check("not yet")
        os.kill(os.getpid(), signum)
        assert stop.requested
        assert handlers() == before
        with pytest.raises(Stopped, match="at step 3"):
            stop.check("at step 3")
    assert "again to interrupt" in capfd.readouterr().err
