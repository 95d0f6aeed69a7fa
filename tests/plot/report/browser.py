"""A headless Chromium with one tab, spoken to by the DevTools protocol through two pipes: no port, no package."""

import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import time
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
FLAGS += ("--no-first-run", "--disable-component-update", "--disable-background-networking", "--remote-debugging-pipe")
FLAGS += ("--disable-ipc-flooding-protection",)  # a test chooses more views in ten seconds than a reader does
SECONDS = 120  # for one answer


def find() -> str | None:
    """Path of a browser on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """What its tab requested, and what its console said, are kept in `requests` and `complaints`."""

    def __init__(self, binary: str, profile: pathlib.Path):
        (theirs_in, self._out), (self._in, theirs_out) = os.pipe(), os.pipe()
        # Chromium reads from 3 and writes to 4: copies above both, so that neither is overwritten
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs_in, theirs_out)]
        actions = [(os.POSIX_SPAWN_DUP2, end, number) for number, end in zip((3, 4), high, strict=True)]
        actions += [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        command = [binary, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawn(binary, command, os.environ, file_actions=actions, setpgroup=0)
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._left, self._number, self._session = b"", 0, None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        tab = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=tab["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command, and its answer; what happens in between is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._left:
            if not select.select([self._in], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError(f"Chromium does not answer within {SECONDS} s")
            found = os.read(self._in, 1 << 20)
            if not found:
                raise RuntimeError("Chromium has ended")
            self._left += found
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.complaints.append(said["entry"]["text"])

    def ask(self, script: str) -> Any:
        """What JavaScript gives; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Until it is true."""
        end = time.monotonic() + SECONDS
        while not self.ask(script):
            if time.monotonic() > end:
                raise TimeoutError(f"not true within {SECONDS} s: {script}; {self.complaints}")
            time.sleep(0.05)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait("document.body?.dataset.ready === 'yes'")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key])

    def close(self) -> None:
        """The process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)


KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9}
