"""Runs the checks of a client in its own environment, so it imports nothing but Python's own library."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

TEXT: Final = "It is sunny in Rome."
"""Text that the model of these tests says."""
QUESTION: Final = "How is the weather in Rome?"
WEATHER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
"""JSON schema of the arguments of the tool ``weather``, which the model calls if it has one."""


def arguments() -> tuple[str, str]:
    """Returns the server's URL, without a slash at its end, and the name of the model."""
    return sys.argv[1], sys.argv[2]


def run(**checks: Callable[[], object]) -> None:
    """Runs every check and writes a line of JSON for each; ends the program with 1 if one fails."""
    failed = 0
    for name, check in checks.items():
        began, detail = time.monotonic(), ""
        try:
            check()
        except Exception:  # noqa: BLE001 - whatever the client raises is the result
            detail = traceback.format_exc()
        failed += bool(detail)
        line = {"check": name, "ok": not detail, "detail": detail, "seconds": round(time.monotonic() - began, 2)}
        print(json.dumps(line), flush=True)
    sys.exit(1 if failed else 0)


def equal(actual: object, expected: object) -> None:
    """Checks that two values are equal."""
    if actual != expected:
        raise AssertionError(f"expected {expected!r}; found {actual!r}")


def raises(call: Callable[[], object], *kinds: type[BaseException], match: str) -> None:
    """Checks that a call raises one of some errors, with a text in its message."""
    try:
        value = call()
    except kinds as error:
        if match not in str(error):
            raise AssertionError(f"expected {match!r} in the message; found {error!s}") from error
        return
    raise AssertionError(f"expected {' or '.join(kind.__name__ for kind in kinds)}; the call returned {value!r}")
