"""Lines of the Python source that call ops."""

import sys
from types import FrameType
from typing import Final

import lang_core

# Frames of these folders are the machinery, their tests excepted; the first frame outside is the user's.
_MACHINERY: Final = tuple(path.rpartition("/")[0] + "/" for path in (lang_core.__file__ or "", __file__))


class SourceLines:
    """Finder of source lines, which remembers files and lines."""

    __slots__ = ("_is_machinery", "_lines")

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], str] = {}
        self._is_machinery: dict[str, bool] = {}

    def innermost(self) -> str:
        """Returns the innermost ``file:line`` of the Python stack outside the machinery."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            machinery = self._is_machinery.get(file)
            if machinery is None:
                machinery = file.startswith(_MACHINERY) and not file.endswith("_test.py")
                self._is_machinery[file] = machinery
            if not machinery:
                key = file, frame.f_lineno
                return self._lines.get(key) or self._lines.setdefault(key, f"{file}:{frame.f_lineno}")
            frame = frame.f_back
        return "unknown"
