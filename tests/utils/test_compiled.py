import os
import pathlib
import subprocess
import sys

from anisoscope.utils import compiled

ROOT = pathlib.Path(__file__).parent.parent.parent
ENTRY = bytes(range(64))


def test_entries_that_were_not_used_for_longest_go(tmp_path):
    machine, another = compiled._machine("one"), compiled._machine("another")
    for folder in (machine, another, "videos"):
        (tmp_path / folder).mkdir()
    (tmp_path / "videos" / "mine").write_bytes(bytes(10 * len(ENTRY)))
    os.utime(tmp_path / "videos" / "mine", (0, 0))  # the cache may hold anything else
    for age, path in enumerate([f"{machine}/a", f"{another}/b", f"{machine}/c", f"{machine}/d"]):
        (tmp_path / path).write_bytes(ENTRY)
        os.utime(tmp_path / path, (age, age))
    os.utime(tmp_path / machine / "a", (9, 0))  # read last, written first
    compiled._trim(tmp_path, 4 * len(ENTRY))
    assert len(list(tmp_path.glob("*/*"))) == 5
    compiled._trim(tmp_path, 3 * len(ENTRY) - 1)
    assert {path.name for path in tmp_path.glob("*/*")} == {"a", "d", "mine"}


def environment(**variables):
    kept = {name: x for name, x in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    return kept | {"PYTHONPATH": str(ROOT)} | variables


def test_library_calls_keep_programs_unless_switched_off_or_elsewhere(tmp_path):
    """In processes of their own, each with an empty home: a line the first time, none the second."""
    code = "import anisoscope, jax; anisoscope.measure; print(jax.config.jax_compilation_cache_dir)"

    def start(**variables):
        env = environment(HOME=str(tmp_path), **variables)
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout.strip(), done.stderr

    own = str(tmp_path / ".cache" / "anisoscope" / "compiled")
    assert start(ANISOSCOPE_COMPILED="OFF") == ("None", "")
    assert start(JAX_COMPILATION_CACHE_DIR="elsewhere") == ("elsewhere", "")
    folder, line = start()
    assert folder.startswith(own)
    assert own in line
    assert "ANISOSCOPE_COMPILED=off" in line
    assert start() == (folder, "")
