"""Whether the suite notices a fault: each is planted in a copy of this checkout, and the tests are run there.

    .venv/bin/python -m dev.planted_faults [--all] [--only TEXT] [--jobs 2] [--again]

The faults are lists of entries in dev/faults/, one file for each room. Of each the tests are run that mirror its
file, then those that its entry names, then those that mirror its folder, until one fails; with --all, the whole of
`make test`. All of them run first without a fault: where they fail, nothing can be said. What was found is kept in
.cache/planted_faults.json, so that a run that was stopped goes on; a change of the code makes it void, and so does
--again. Exit code 1 if a fault goes unnoticed or cannot be planted.
"""

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from anisoscope.utils.files import read_json, write, write_json
from dev.faults import FAULTS
from dev.faults.entry import Fault

ROOT = pathlib.Path(__file__).parent.parent
PYTEST = ("-m", "pytest", "-n0", "-x", "-q", "-rfE", "-m", "not slow")
MINUTES = 30  # for one fault and one file or folder
FOUND = pathlib.Path(".cache") / "planted_faults.json"


def files(root: pathlib.Path) -> list[str]:
    """What git tracks or would track, as it lies in the folder."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return sorted({name for name in names if (root / name).is_file() or (root / name).is_symlink()})


def digest(root: pathlib.Path) -> str:
    """Of the code and the settings of the tests, without the faults themselves."""
    code = [name for name in files(root) if name.endswith((".py", ".toml")) and not name.startswith("dev/faults/")]
    return hashlib.sha256(b"".join(name.encode() + (root / name).read_bytes() for name in code)).hexdigest()[:16]


def why_not(fault: Fault, root: pathlib.Path) -> str:
    """Why a fault cannot be planted; '' where it can."""
    path = root / fault.file
    times = path.read_text().count(fault.old) if path.is_file() else 0
    if times != 1:
        return f"its old text occurs {times} times in {fault.file}, not once"
    if fault.old == fault.new:
        return "its new text is its old one"
    return "" if targets(fault, root) else "no test mirrors its file"


def targets(fault: Fault, root: pathlib.Path) -> list[str]:
    """Files and folders of tests, the likeliest to notice first."""
    path = pathlib.PurePosixPath(fault.file.removeprefix("anisoscope/"))  # tests/ mirrors the rooms inside
    folder = pathlib.PurePosixPath("tests") / path.parent
    names = [str(folder / f"test_{path.stem}.py"), *fault.tests, *([str(folder)] if path.parent.name else [])]
    return [name for name in dict.fromkeys(names) if (root / name).exists()]


def copied(root: pathlib.Path, folder: str) -> pathlib.Path:
    """A copy of the checkout that shares its compiled programs: a program with a fault in it has another key."""
    copy = pathlib.Path(folder) / "checkout"
    for name in files(root):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, copy / name, follow_symlinks=False)  # the package's folders are links
    cache = root / ".cache"
    cache.mkdir(exist_ok=True)
    (copy / ".cache").symlink_to(cache.resolve())
    return copy


def first_failure(copy: pathlib.Path, names: list[str]) -> str:
    """The first test that fails, and '' if none does; files and folders one after another."""
    for name in names:
        try:
            ended = subprocess.run(
                [sys.executable, *PYTEST, name],
                cwd=copy,
                env=os.environ
                | {"PYTHONDONTWRITEBYTECODE": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},  # as in make test
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60 * MINUTES,
            )
        except subprocess.TimeoutExpired:
            return f"{name}, which did not end within {MINUTES} minutes"
        if ended.returncode in (0, 5):  # 5: a file all of whose tests are slow
            continue
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
        if not failed:  # killed, or no room on the disk: it says nothing about the fault
            raise RuntimeError(f"pytest {name} ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
        return failed[0]
    return ""


def noticed_by(fault: Fault | None, root: pathlib.Path, names: list[str]) -> str:
    """Runs the tests in a copy with the fault, or without any."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        copy = copied(root, folder)
        if fault is not None:
            path = copy / fault.file
            write(path, path.read_text().replace(fault.old, fault.new))
        return first_failure(copy, names)


def remembered(path: pathlib.Path, code: str) -> dict[str, str]:
    """What was found of the same code before, by fault and tests."""
    known = read_json(path, "delete it") if path.exists() else {}
    return known["found"] if known.get("code") == code else {}


def ask(asked: dict[str, tuple[Fault | None, list[str]]], root: pathlib.Path, jobs: int) -> dict[str, str]:
    """By name, the test that noticed, or ''. Each answer is printed and written down as soon as it is there."""
    path, code = root / FOUND, digest(root)
    found = remembered(path, code)
    keys = {name: hashlib.sha256(repr(what).encode()).hexdigest()[:16] for name, what in asked.items()}
    new = {name: what for name, what in asked.items() if keys[name] not in found}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        begun = {pool.submit(noticed_by, fault, root, names): name for name, (fault, names) in new.items()}
        try:
            for number, future in enumerate(concurrent.futures.as_completed(begun), 1):
                name = begun[future]
                found[keys[name]] = future.result()
                write_json(path, {"code": code, "found": found})
                print(f"{number}/{len(begun)} {name}: {found[keys[name]] or 'all tests pass'}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {name: found[key] for name, key in keys.items()}


def plant(faults: list[Fault], root: pathlib.Path, everything: bool = False, jobs: int = 2) -> int:
    """How many faults went unnoticed or could not be planted."""
    refused = {fault.name: why for fault in faults if (why := why_not(fault, root))}
    planted = {
        fault.name: (fault, ["tests"] if everything else targets(fault, root))
        for fault in faults
        if fault.name not in refused
    }
    names = {name for _, targets_of in planted.values() for name in targets_of}
    names = sorted(name for name in names if str(pathlib.PurePosixPath(name).parent) not in names)
    as_it_is = ask({f"{name} without a fault": (None, [name]) for name in names}, root, jobs)
    if any(as_it_is.values()):
        sys.exit(f"tests fail without a fault: {', '.join(filter(None, as_it_is.values()))}")
    noticed = ask(planted, root, jobs)
    unnoticed = [name for name, test in noticed.items() if not test]
    for name, why in refused.items():
        print(f"REFUSED {name}: {why}")
    for name in unnoticed:
        print(f"NOT NOTICED {name} ({planted[name][0].file})")
    print(f"{len(noticed) - len(unnoticed)} of {len(faults)} faults were noticed")
    return len(refused) + len(unnoticed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="the whole of `make test` for each fault")
    parser.add_argument("--only", default="", help="those with this text in their name or file")
    parser.add_argument("--jobs", type=int, default=2, choices=(1, 2), help="faults at a time")
    parser.add_argument("--again", action="store_true", help="forget what was found before")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if options.only in f"{fault.name} {fault.file}"]
    if options.again:
        (ROOT / FOUND).unlink(missing_ok=True)
    sys.exit(plant(chosen, ROOT, options.all, options.jobs) > 0)


if __name__ == "__main__":
    main()
