"""Structured logs: one JSON object per line."""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import IO, Any, Final

from lang_core import InputError, TapelineError, checked_choices


class Log:
    """Log of a server: lines of JSON with ``time``, ``level``, ``event`` and its fields.

    Lines never have the text of prompts or answers.

    Args:
        file: takes the lines; stderr if None.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file: Final = file
        self._lock: Final = threading.Lock()

    def info(self, event: str, **fields: Any) -> None:
        """Writes a line at level info."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Writes a line about an error of a client."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Writes a line about a failure."""
        self._write("error", event, fields)

    @checked_choices
    def failure(self, event: str, error: BaseException, *, of_request: bool = False, **fields: Any) -> None:
        """Writes a line of an exception, with its traceback.

        Args:
            event: name of the line.
            error: the exception.
            of_request: True leaves out texts of exceptions that are none of Tapeline's: they may show a client's text.
            **fields: further fields.
        """
        if of_request:
            self.error(event, error=_described(error), traceback="".join(_traces(error)), **fields)
        else:
            self.error(event, error=str(error), traceback="".join(traceback.format_exception(error)), **fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "level": level, "event": event, **fields}, ensure_ascii=False, default=str)
        file = self._file or sys.stderr
        with self._lock:
            file.write(line + "\n")
            file.flush()


class LogHandler(logging.Handler):
    """Handler that writes the log records of libraries as lines of a log.

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


def _described(error: BaseException) -> str:
    """Returns the kind of an exception, with its text if that shows nothing of a client."""
    name = type(error).__name__
    shows = isinstance(error, TapelineError) and not isinstance(error, InputError)
    return f"{name}: {error}" if shows else name


def _traces(error: BaseException | None) -> Iterator[str]:
    """Yields the traces of an exception and of its causes, the last cause first."""
    if error is None:
        return
    yield from _traces(error.__cause__ or (None if error.__suppress_context__ else error.__context__))
    yield from traceback.extract_tb(error.__traceback__).format()
    yield f"{_described(error)}\n"
