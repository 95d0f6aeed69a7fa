import os
import pathlib
import subprocess
import sys

import pytest

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


PROGRAM = """
import collections, hashlib, sys
from anisoscope.utils import compiled
print(compiled.keep(sys.argv[1]))
import jax, numpy as np
counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rpartition("/")[2]]))
x_PD = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
eigenvalues_D = jax.jit(lambda x_PD: jax.numpy.linalg.eigvalsh(x_PD.T @ x_PD))(x_PD)
sorted_D = jax.numpy.sort(eigenvalues_D * 2)
print(hashlib.sha256(np.asarray(sorted_D).tobytes()).hexdigest(), counts["cache_hits"], counts["cache_misses"])
"""


def environment(**variables):
    kept = {name: x for name, x in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    return kept | {"PYTHONPATH": str(ROOT)} | variables


def start(cache):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", PROGRAM, str(cache)]
    return subprocess.Popen(command, env=environment(), **pipes)


def finish(process):
    """Digest of the result, programs read, and programs compiled."""
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, errors) == (0, "")
    why, result = output.split("\n", 1)
    assert why == ""
    digest, hits, misses = result.split()
    return digest, int(hits), int(misses)


@pytest.mark.slow
def test_a_second_start_compiles_nothing_and_damage_is_compiled_again(tmp_path):
    digests, counts = zip(
        *((d, h + m) for d, h, m in map(finish, [start(tmp_path), start(tmp_path)])), strict=True
    )
    programs = counts[0]
    assert counts == (programs, programs)  # two at once: whoever compiled it
    assert finish(start(tmp_path)) == (digests[0], programs, 0)
    assert digests[0] == digests[1]
    entries = sorted((tmp_path / "compiled").glob("*/*"))
    assert len(entries) == programs >= 3
    for number, entry in enumerate(entries):
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes([content, content[: len(content) // 2], b""][number % 3])
    assert finish(start(tmp_path)) == (digests[0], 0, programs)
    assert sorted((tmp_path / "compiled").glob("*/*")) == entries


LIBRARY = """
import collections, jax, numpy as np
counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rpartition("/")[2]]))
from anisoscope import metrics
from anisoscope.utils import compiled
options = lambda: [getattr(jax.config, name) for name in compiled._options("")]
before, x_PD = options(), np.eye(4, 8)
jax.jit(lambda x: x + 1)(x_PD)
assert not counts["cache_hits"] + counts["cache_misses"]
with compiled.library_programs:
    metrics.mean_norm(x_PD)  # a call within a call
    inside = jax.config.jax_compilation_cache_dir
assert options() == before
own = counts["cache_hits"] + counts["cache_misses"]
jax.jit(lambda x: x + 2)(x_PD)
assert before[0] or counts["cache_hits"] + counts["cache_misses"] == own
metrics.mean_norm(x_PD[:3])
assert options() == before
print(inside, own, counts["cache_hits"])
"""


def test_library_calls_keep_programs_and_leave_the_settings_to_the_user(tmp_path):
    """Unless they are switched off, or the user has a cache. Each process says nothing."""

    def start(**variables):
        env = environment(HOME=str(tmp_path), **variables)
        command = [sys.executable, "-c", LIBRARY]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        folder, *counts = done.stdout.split()
        return folder, *map(int, counts)

    assert start(ANISOSCOPE_COMPILED="OFF") == ("None", 0, 0)
    assert start(JAX_COMPILATION_CACHE_DIR=str(tmp_path / "mine"))[0] == str(tmp_path / "mine")
    folder, programs, read = start()
    assert folder.startswith(str(tmp_path / ".cache" / "anisoscope" / "compiled"))
    assert (programs > 0, read) == (True, 0)
    again = start()
    assert again[:2] == (folder, programs)
    assert again[2] > programs  # those of the second call too
