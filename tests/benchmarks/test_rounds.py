"""Workers take turns, answer with seconds, and a dead one ends the benchmark with a line."""

import sys

import pytest

from benchmarks import rounds

WORKER = """
import time
from benchmarks.rounds import serve
def slow():
    print("a library's noise")
    time.sleep(0.02)
serve({"version": "1"}, {"slow": slow, "quick": lambda: None})
"""


def test_seconds_come_by_worker_and_task():
    commands = {name: [sys.executable, "-c", WORKER] for name in ("one", "two")}
    facts, seconds = rounds.alternate(commands, 3)
    assert facts == {"one": {"version": "1"}, "two": {"version": "1"}}
    for tasks in seconds.values():
        assert [len(times) for times in tasks.values()] == [3, 3]
        assert min(tasks["slow"]) >= 0.02  # what a sleep takes at least, on a busy machine too


def test_a_dead_worker_is_told():
    with pytest.raises(SystemExit, match="the worker one ended without an answer"):
        rounds.alternate({"one": [sys.executable, "-c", "raise SystemExit(3)"]}, 1)


def test_ratios_are_taken_round_by_round():
    assert rounds.ratio([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]) == "1.00 (0.50-1.50)"
    assert rounds.spread([0.001, 0.003, 0.002]) == "2 (1-3)"
