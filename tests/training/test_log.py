import gc
import resource

import pytest

from anisoscope.training.log import Log, read_log
from anisoscope.utils.errors import RunError


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_log(folder)]


def test_every_number_is_in_the_log(tmp_path):
    log = Log(tmp_path, 0)
    log.write(1, "train", loss=2.5, learning_rate=0.25)
    log.write(1, "watch", drift=[1.5, 2.5])
    log.close()
    assert read_log(tmp_path) == [
        {"step": 1, "kind": "train", "loss": 2.5, "learning_rate": 0.25},
        {"step": 1, "kind": "watch", "drift": [1.5, 2.5]},
    ]


def test_what_will_be_done_again_is_dropped(tmp_path):
    for resumed in (0, 1):
        log = Log(tmp_path, resumed)
        for step in (resumed + 1, resumed + 2):
            log.write(step, "train", loss=float(10 * resumed + step))
        log.close()
    assert losses(tmp_path) == [(1, 1.0), (2, 12.0), (3, 13.0)]


def test_what_is_done_again_though_it_is_saved_is_neither_lost_nor_doubled(tmp_path):
    """One of several seeds that goes back to step 0, while its own newest checkpoint is that of
    step 2.
    """
    for first in (1, 0):
        log = Log(tmp_path, 2 * (1 - first))
        for step in (1, 2, 3):
            log.write(step, "train", loss=float(10 * first + step))
        assert (tmp_path / "train.jsonl").read_text().count("\n") >= 2 * (1 - first)
        log.close()
    assert losses(tmp_path) == [(1, 11.0), (2, 12.0), (3, 3.0)]


@pytest.mark.parametrize(
    "line", [b'{"step": 2, "ki\xffd": "train"}', b'{"step": 2, "kind', b'{"step": 2}', b"7", b""]
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path, line):
    whole = b'{"step": 1, "kind": "train"}\n'
    (tmp_path / "train.jsonl").write_bytes(whole + line + b"\n" + whole)
    with pytest.raises(RunError, match=r"train\.jsonl, line 2 is damaged \(.*remove that line"):
        read_log(tmp_path)


@pytest.mark.parametrize("lines", [1, 100])  # held in a buffer, or more than it holds
def test_a_full_disk_is_one_line_that_names_the_log_and_comes_once(tmp_path, lines):
    log, limits = Log(tmp_path, 0), resource.getrlimit(resource.RLIMIT_FSIZE)

    def write():
        for step in range(lines):
            log.write(step + 1, "train", **{"x" * 200: 1.0})
        log.flush()

    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
    try:
        with pytest.raises(
            RunError,
            match=r"train\.jsonl: .*; free space on the disk, and the same command resumes",
        ):
            write()
        log.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    gc.collect()  # a warning of a file that could not be closed would be an error
