import pytest

from benchmarks import cloud


@pytest.mark.slow  # nothing of the product rests on it
def test_every_operation_has_a_row_of_two_times(monkeypatch, capsys):
    monkeypatch.setattr(cloud, "on_one_core", lambda: None)  # the tests' process would keep to it
    cloud.main(["--points=64", "--width=6", "--folds=4", "--layers=2", "--rounds=1"])
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")][2:]
    assert [row[0].strip() for row in rows] == [name for name, *_ in cloud.operations(64, 6, 4, 2)]
    assert len(rows) == 16
    assert all(float(row[1]) > 0 and float(row[2]) >= 0 for row in rows)
