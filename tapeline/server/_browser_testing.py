"""Headless Chromium of this machine, driven through a pipe."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A page in a browser; speaks the browser's protocol for developers, a message between zero bytes.

    Args:
        commands: takes messages.
        answers: gives them.
    """

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest, self._number = b"", 0
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method on the page."""
        return self._call(method, self._session, **parameters)

    def open(self, url: str, width: int, height: int, *, dark: bool = False) -> None:
        """Opens a page in a window of a size."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **sizes)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Returns the value of an expression on the page."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def type(self, text: str) -> None:
        """Types a text where the focus is."""
        self.call("Input.insertText", text=text)

    def press_enter(self) -> None:
        """Presses Enter."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the page, a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        os.write(self._commands, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Runs a browser for the block."""
    commands, answers = os.pipe(), os.pipe()
    # The browser reads descriptor 3 and writes 4.
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
    shell = f'exec 3<&{commands[0]} 4>&{answers[1]}; exec "$0" "$@"'
    command = ["bash", "-c", shell, str(CHROMIUM), *flags.split(), f"--user-data-dir={profile}"]
    with subprocess.Popen(command, pass_fds=(commands[0], answers[1]), stderr=subprocess.DEVNULL) as process:
        os.close(commands[0])
        os.close(answers[1])
        try:
            yield Browser(commands[1], answers[0])
        finally:
            process.kill()
            os.close(commands[1])
            os.close(answers[0])
