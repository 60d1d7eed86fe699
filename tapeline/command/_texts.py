"""Texts that flags give, one by one or in a file."""

from collections.abc import Sequence
from pathlib import Path

from lang_core import InputError
from tapeline.cli import user_path
from tapeline.command._paths import check_readable


def texts_of(name: str, texts: Sequence[str], path: str | None) -> list[str]:
    """Returns the texts of a flag, or those of the file of the flag with an s.

    Args:
        name: the flag's name.
        texts: its values.
        path: value of the other flag, a file with a text per line; empty lines are none.

    Raises:
        InputError: there are no texts, both flags are given, or the file cannot be read.
    """
    if bool(texts) == bool(path):
        raise InputError(f"give a text with `{name}`, once for each, or a file of them with `{name}s`")
    check_readable(f"{name}s", [path] if path else ())
    lines = _lines(f"{name}s", user_path(path)) if path else list(texts)
    if not lines:
        raise InputError(f"{name}s={path}: there is no text in it: write one per line")
    return lines


def whole_text(name: str, path: str) -> str:
    """Returns the text of the file that a flag names.

    Raises:
        InputError: it cannot be read.
    """
    check_readable(name, [path])
    return _read(name, user_path(path))


def _lines(name: str, path: Path) -> list[str]:
    return [line for line in _read(name, path).splitlines() if line.strip()]


def _read(name: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name}={path}: is not UTF-8: write it in UTF-8") from None
    except OSError as error:
        raise InputError(f"{name}={path}: cannot be read: {error.strerror}") from None
