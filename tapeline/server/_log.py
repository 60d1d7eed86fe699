"""Structured logs: one JSON object per line."""

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import IO, Any, Final


class Log:
    """Log of a server: lines of JSON with ``time``, ``level``, ``event`` and what belongs to it.

    No line has the text of a prompt or an answer.

    Args:
        file: takes the lines; stderr where None.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file: Final = file
        self._lock: Final = threading.Lock()

    def info(self, event: str, **fields: Any) -> None:
        """Writes a line of what went as it should."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Writes a line of what a client did wrong."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Writes a line of what failed."""
        self._write("error", event, fields)

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """Writes a line of an exception, with its traceback."""
        self.error(event, error=str(error), traceback="".join(traceback.format_exception(error)), **fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "level": level, "event": event, **fields}, ensure_ascii=False, default=str)
        file = self._file or sys.stderr
        with self._lock:
            file.write(line + "\n")
            file.flush()


class LogHandler(logging.Handler):
    """Handler that writes what libraries log as lines of a log.

    Args:
        log: takes the lines.
    """

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log: Final = log

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        more = {"traceback": "".join(traceback.format_exception(record.exc_info[1]))} if record.exc_info else {}
        write("library", logger=record.name, message=record.getMessage(), **more)
