"""Typed errors of Tapeline.

Every message has the request, the actual value, the place, and the fix.
"""

import difflib
from collections.abc import Iterable
from typing import Final

_LONGEST_NAME: Final = 200  # letters that are compared with names; a file can give a name of megabytes


class TapelineError(Exception):
    """Base of every error that Tapeline raises on purpose."""


class InputError(TapelineError):
    """Error in the user's input: a file, an option, a config."""


class CheckpointError(InputError):
    """A checkpoint's file or tensor is missing, damaged or of another shape than the model's."""


class ConfigError(InputError):
    """A model's configuration lacks a field, is inconsistent or needs an unsupported feature."""


class DescriptionError(InputError):
    """The description of a compiled module contradicts the module, or itself."""


class ChoiceError(ConfigError):
    """An argument with a fixed set of values, such as an enumeration's, is none of them."""


class MissingPackageError(InputError):
    """A required package is not installed."""


class PluginError(TapelineError):
    """An installed package that extends Tapeline cannot be loaded."""


class OpError(TapelineError):
    """An op was called against its contract."""


class TraceEscapeError(TapelineError):
    """A value without data was used as if it had some, or data was about to enter a trace unseen."""


class OperatorError(OpError, TraceEscapeError, TypeError):
    """A Python operator or a NumPy function was applied to a tensor: ``ctx.ops`` has the op to call."""


class UnknownNameError(OpError, AttributeError):
    """An op or an attribute was looked up that does not exist; ``hasattr`` is False of it."""


class KeywordError(InputError, OpError, TypeError):
    """A function was called with a keyword argument that it does not have."""


class RecordingError(TapelineError):
    """Recording was used out of order: a closed tape, a foreign value, a block that does not nest."""


class GraphError(TapelineError):
    """A graph is malformed, or was asked for something it does not have."""


class CompileError(TapelineError):
    """A compiler refused a module."""


class DeviceError(TapelineError):
    """A device is absent, or refused a call."""


class ProcessError(TapelineError):
    """Another process of the same run has not come, has ended, or does something else."""


class VerificationError(TapelineError):
    """A result does not agree with its reference."""


def near_names(name: str, known: Iterable[str], limit: int = 3) -> str:
    """Returns a hint at near names, ``"; did you mean 'a' or 'b'?"``, or ``""`` if none is near.

    >>> near_names("weigth", ["weight", "bias"])
    "; did you mean 'weight'?"
    """
    near = difflib.get_close_matches(_text(name), list(known), n=limit, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def some_of(name: str, known: Iterable[str], limit: int = 12) -> str:
    """Returns the names that a message lists: all if they are few, else the five nearest ones and their number.

    >>> some_of("c", ["a", "b"])
    'a, b'
    >>> some_of("x12", [f"x{number}" for number in range(100)])
    'x12, x2, x1, x92, x91 ... (100 in all)'
    """
    names = list(known)
    if len(names) <= limit:
        return ", ".join(names)
    near = difflib.get_close_matches(_text(name), names, n=5, cutoff=0.0)
    return f"{', '.join(near)} ... ({len(names)} in all)"


def _text(name: object) -> str:
    """Returns the beginning of a name to compare; a caller may have passed a value that is not a text."""
    return (name if isinstance(name, str) else str(name))[:_LONGEST_NAME]


def any_of(names: Iterable[str]) -> str:
    """Returns names as a choice.

    >>> any_of(["a", "b", "c"])
    'a, b or c'
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
