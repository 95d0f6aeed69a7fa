"""Two real processes of one cluster: all compute, the first one writes, and what one of them sees,
all act on.
"""

import json
import os
import signal
import socket

import pytest

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
