"""Headless Chromium, told what to do over a pipe in its DevTools protocol: no driver and no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--window-size=1200,900",
    "--remote-debugging-pipe",
]


class Browser:
    """One page in a browser of its own; ``requests`` and ``errors`` are what it asked for and complained of."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._to = os.pipe()
        ours, back = os.pipe()
        self._from = os.fdopen(ours, "rb")
        command = [str(EXECUTABLE), *_FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{back}', "bash", *command],
            pass_fds=(theirs, back),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(back)
        self._session: str | None = None
        self._count = 0
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                return answer["result"]
            self._note(answer.get("method"), answer.get("params", {}))

    def _read(self) -> bytes:
        message = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("Chromium ended")
            message += byte
        return bytes(message)

    def _note(self, method: str | None, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])

    def open(self, path: Path) -> None:
        """Go to a file and wait until Plotly has drawn."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && document.querySelector('#plot .main-svg') !== null")

    def wait(self, condition: str, seconds: float = 600) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"it never came true that {condition}; {self.errors}"
            time.sleep(0.1)

    def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """The mouse, with its left button down."""
        places = [[a + (b - a) * k / 10 for a, b in zip(start, end, strict=True)] for k in range(11)]
        kinds = ["mousePressed", *["mouseMoved"] * 9, "mouseReleased"]
        for kind, (x, y) in zip(kinds, places, strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def point(self, x: float, y: float) -> None:
        """Move the mouse there."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """What is to be seen, as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self) -> None:
        """End the browser."""
        os.close(self._to)
        self._from.close()
        self.process.terminate()
        self.process.wait(600)
        self.profile.cleanup()
