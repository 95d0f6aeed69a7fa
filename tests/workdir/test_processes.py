"""Two real processes of one cluster: all compute, the first one writes, and what one of them sees, all act on."""

import json
import pathlib
import socket
import subprocess
import sys

from tests.program import ROOT, environment

WORK = """
import json, pathlib, sys
import jax
rank, port, folder = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
jax.distributed.initialize(f"localhost:{port}", 2, rank)
from training.log import Log
from workdir import processes
from workdir.errors import Stopped, UserError
from workdir.progress import bar
from workdir.stop import Stop

def refuse():
    raise UserError("this folder is taken")

def told(work):
    try:
        work()
    except (Stopped, UserError) as error:
        return f"{type(error).__name__}: {error}"

processes.on_first(lambda: (folder / f"made_by_{rank}").touch())
log = Log(folder, -1)
log.write(0, "train", loss=1.5 + rank)
log.close()
stop = Stop()
before = told(lambda: stop.check("after step 3"))
stop.asked = rank == 1
print(json.dumps({
    "first": processes.is_first(),
    "largest": processes.largest(rank, -rank, 2.5),
    "quiet": bar([], "measure", "checkpoint").disable,
    "refused": told(lambda: processes.on_first(refuse)),
    "stopped": [before, told(lambda: stop.check("after step 4"))],
}))
"""


def test_two_processes_act_as_one(tmp_path):
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        port = str(unused.getsockname()[1])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [
        subprocess.Popen([sys.executable, "-c", WORK, rank, port, str(tmp_path)], cwd=ROOT, env=environment(), **pipes)
        for rank in "01"
    ]
    said = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], said
    first, second = (json.loads(output.splitlines()[-1]) for output, _ in said)
    assert (first["first"], second["first"]) == (True, False)
    assert (first["quiet"], second["quiet"]) == (False, True)
    assert first["largest"] == second["largest"] == [1.0, 0.0, 2.5]
    assert first["refused"] == "UserError: this folder is taken"
    assert second["refused"] == "UserError: the first process has refused; see its message"
    assert first["stopped"] == second["stopped"] == [None, "Stopped: after step 4"]
    assert sorted(path.name for path in tmp_path.glob("made_by_*")) == ["made_by_0"]
    assert [json.loads(line)["loss"] for line in (tmp_path / "train.jsonl").read_text().splitlines()] == [1.5]
    assert len(list(pathlib.Path(tmp_path).glob("events*"))) == 1
