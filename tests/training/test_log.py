import resource

import pytest

from anisoscope.training.log import Log, read_log, read_score, validated_steps
from anisoscope.utils.errors import RunError, UserError


def losses(folder):
    return [(line["step"], line["loss"]) for line in read_log(folder)]


def test_lines_after_the_newest_checkpoint_are_replaced_and_earlier_ones_kept(tmp_path):
    """Also of a seed that goes back to step 0, while its own newest checkpoint is that of step 2."""
    for saved, value in ((0, 10.0), (2, 0.0)):
        log = Log(tmp_path, saved)
        for step in (1, 2, 3):
            log.write(step, "train", loss=value + step)
        assert len(read_log(tmp_path)) == saved  # the rest waits for `flush`
        log.flush()
    assert losses(tmp_path) == [(1, 11.0), (2, 12.0), (3, 3.0)]


@pytest.mark.parametrize(
    "line",
    [
        *(b'{"step": 2, "ki\xffd": "train"}', b'{"step": 2, "kind', b'{"step": 2}', b"7", b""),
        b'{"step": "2", "kind": "train"}',
    ],
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path, line):
    whole = b'{"step": 1, "kind": "train"}\n'
    (tmp_path / "train.jsonl").write_bytes(whole + line + b"\n" + whole)
    with pytest.raises(RunError, match=r"train\.jsonl, line 2 is damaged \(.*remove that line"):
        read_log(tmp_path)


def test_a_last_line_that_a_kill_cut_short_is_left_out(tmp_path):
    whole = b'{"step": 1, "kind": "train"}\n{"step": 2, "kind": "valid"}\n'
    (tmp_path / "train.jsonl").write_bytes(whole + b'{"step": 3, "kind": "va')
    lines = read_log(tmp_path)
    assert [line["step"] for line in lines] == [1, 2]
    assert validated_steps(lines) == {2}


def test_a_score_without_its_number_is_refused(tmp_path):
    assert read_score(tmp_path) == {}
    (tmp_path / "test.json").write_text('{"bits_per_character": null, "step": 6}')
    with pytest.raises(UserError, match="has no bits_per_character; move it elsewhere"):
        read_score(tmp_path)


def test_a_full_disk_is_one_line_that_names_the_log_and_comes_once(tmp_path):
    log, limits = Log(tmp_path, 0), resource.getrlimit(resource.RLIMIT_FSIZE)
    log.write(1, "train", **{"x" * 200: 1.0})
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, limits[1]))
    words = r"train\.jsonl: .*; free space on the disk, and the same command resumes"
    try:
        with pytest.raises(RunError, match=words):
            log.flush()
        log.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
