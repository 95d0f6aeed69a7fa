"""Two processes of one cluster on this machine, as under SLURM."""

import contextlib
import os
import subprocess
import sys

from tests.program import ROOT, environment


def run(*commands: list[str], devices: int) -> list[subprocess.CompletedProcess]:
    """A command for each process, or one for both; what they came to. Each has so many devices."""
    shared = environment(devices) | {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_NTASKS": "2",
    }
    with contextlib.ExitStack() as stack:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = []
        for rank, command in zip("01", commands * (2 // len(commands)), strict=True):
            env = shared | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
            started.append(subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, **pipes))
            stack.callback(started[-1].kill)
        said = [process.communicate(timeout=900) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *words)
        for process, words in zip(started, said, strict=True)
    ]
