"""Regular expressions of a checkpoint's files, matched against names of modules in bounded time.

Python's ``re`` backtracks: a pattern of 12 letters can take hours. RE2 takes time in proportion to the pattern and the
name, but lacks look-around and back references, and reads a few constructs in another way. So a pattern that both read
alike is matched by RE2, and any other one by ``re`` if its steps can be bounded beforehand. Either way it matches like
``re``.
"""

import re
import time
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import re2

from lang_core import ConfigError

LONGEST_PATTERN: Final = 10_000
"""Most letters of a pattern."""
LONGEST_NAME: Final = 500
"""Most letters of a name that is matched against patterns."""
MOST_PATTERNS: Final = 20_000
"""Most patterns of one field."""
SECONDS: Final = 20.0
"""Time after which matching all names against the patterns of one field ends with an error."""
_MEMORY: Final = 64 << 20  # bytes of all compiled patterns, shared among them between the next two
_LEAST_MEMORY: Final = 32 << 10
_MOST_MEMORY: Final = 8 << 20
_MOST_STEPS: Final = 20_000_000  # of `re` for one name
_LONGEST_SLOW_NAME: Final = 200

# Constructs that RE2 and `re` both read, but not alike: {,3}, [[:alpha:]], \12, \B in an empty name, letters that are
# not ASCII.
_READ_OTHERWISE: Final = re.compile(r"\{,|\[:|\[=|\[\.|\\[0-9B]|[^\x00-\x7f]")
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")
_REPETITION: Final = re.compile(r"[*+{]")
_CHOICE: Final = re.compile(r"\||(?<!\()\?")


class NamePatterns:
    """Regular expressions that are matched against names of modules.

    Args:
        patterns: regular expressions in the syntax of Python's ``re``.
        where: the file and the field, for messages.
        before: regular expression of the text before a pattern, which then must match up to the end of the name, as in
            PEFT; None if a pattern must match the start of the name, as in compressed-tensors (``re.match``).

    Raises:
        ConfigError: a pattern is not a regular expression, is too long, or could take too long to match.
    """

    def __init__(self, patterns: Sequence[str], where: str, before: str | None = None) -> None:
        self._where: Final = where
        if len(patterns) > MOST_PATTERNS:
            raise ConfigError(f"{where}: has {len(patterns)} patterns, expected {MOST_PATTERNS} at most")
        self._texts: Final = tuple(patterns)
        self._whole: Final = before is not None
        self._options: Final = _options(max(_LEAST_MEMORY, min(_MOST_MEMORY, _MEMORY // max(1, len(patterns)))))
        self._compiled: Final = [
            self._compile(text, text if before is None else f"{before}({text})") for text in patterns
        ]
        self._left = SECONDS

    def first(self, name: str) -> int | None:
        """Returns the number of the first pattern that matches a name; None if there is none.

        Raises:
            ConfigError: the name is longer than any, or has letters that are not printable ASCII; or matching takes
                too long.
        """
        if not self._compiled:
            return None
        if len(name) > LONGEST_NAME or not (name.isascii() and name.isprintable()):
            raise ConfigError(
                f"{self._where}: patterns are matched against names of up to {LONGEST_NAME} printable ASCII letters; "
                f"found the module {name!r:.80}: name the modules in place of patterns"
            )
        begin = time.monotonic()
        number = next((number for number in range(len(self._compiled)) if self._matches(number, name)), None)
        self._left -= time.monotonic() - begin
        if self._left < 0:
            raise ConfigError(
                f"{self._where}: {len(self._compiled)} patterns take longer than {SECONDS:g} s; found at module "
                f"{name!r:.80}: name the modules in place of patterns"
            )
        return number

    def _matches(self, number: int, name: str) -> bool:
        pattern, slow = self._compiled[number]
        if slow and len(name) > _LONGEST_SLOW_NAME:
            self._refuse(number, f"a pattern without look-around for names of over {_LONGEST_SLOW_NAME} letters")
        return (pattern.fullmatch(name) if self._whole else pattern.match(name)) is not None

    def _compile(self, text: str, pattern: str) -> tuple[Any, bool]:
        """Returns a compiled pattern, and whether it is one of ``re``."""
        if len(text) > LONGEST_PATTERN:
            raise ConfigError(f"{self._where}: a pattern has {len(text)} letters, expected {LONGEST_PATTERN} at most")
        try:
            re.compile(text)
            backtracking = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigError(f"{self._where}: {text!r:.200} is no regular expression ({error})") from None
        if _READ_OTHERWISE.search(pattern) is None:
            try:
                return re2.compile(pattern, self._options), False
            except re2.error:
                pass  # a construct that RE2 does not have, or a pattern of more than its memory
        if _steps(text) > _MOST_STEPS:
            raise ConfigError(
                f"{self._where}: {text!r:.200} could take very long to match: expected a regular expression that RE2 "
                "reads, or one with up to three repetitions, none of a group: name the modules in place of the pattern"
            )
        return backtracking, True

    def _refuse(self, number: int, expected: str) -> NoReturn:
        raise ConfigError(f"{self._where}: {self._texts[number]!r:.200}: expected {expected}")


def _options(memory: int) -> Any:
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return options


def _steps(text: str) -> int:
    """Returns a bound of the steps that ``re`` takes for one name.

    A repetition ends at one of the name's letters, a choice has two ways. A repeated group is unbounded.
    """
    plain = _ESCAPE.sub("x", text)
    if _REPEATED_GROUP.search(plain):
        return _MOST_STEPS + 1
    repetitions, choices = len(_REPETITION.findall(plain)), len(_CHOICE.findall(plain))
    return _LONGEST_SLOW_NAME ** min(repetitions, 10) * 2 ** min(choices, 60)
