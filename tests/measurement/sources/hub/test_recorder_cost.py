"""The benchmark of the recorder prints what docs state."""

import re

from benchmarks import recorder


def test_a_line_for_each_way(capsys):
    given = {"layers": 2, "width": 32, "context": 8, "batch": 4, "rounds": 2, "steps": 1, "points": 64}
    recorder.main([f"--{name}={value}" for name, value in given.items()])
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["without", "filling", "full"]
    assert all(re.search(r"ms a step, \d+\.\d{3} \(\d", line) for line in lines[2:])
