"""Two processes of one cluster on this machine, as under SLURM."""

import contextlib
import os
import subprocess
import sys

from tests.program import ROOT, environment


def cluster(count: int) -> list[dict[str, str]]:
    """What each of several processes on this machine finds in its environment, as under SLURM."""
    shared = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_NODES": "1",
    }
    shared |= {"SLURM_NTASKS": str(count)}
    return [
        shared | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(count)
    ]


def run(*commands: list[str], devices: int) -> list[subprocess.CompletedProcess]:
    """A command for each process, or one for both; what they came to. Each has so many devices."""
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    with contextlib.ExitStack() as stack:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started = []
        for command, env in zip(commands * (2 // len(commands)), cluster(2), strict=True):
            env = environment() | env | flags
            started.append(subprocess.Popen([sys.executable, *command], cwd=ROOT, env=env, **pipes))
            stack.callback(started[-1].kill)
        said = [process.communicate(timeout=900) for process in started]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *words)
        for process, words in zip(started, said, strict=True)
    ]
