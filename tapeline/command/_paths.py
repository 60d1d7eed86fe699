"""Paths that flags name, checked before the work that reads or writes them."""

from collections.abc import Iterable

import tapeline
from lang_core import InputError
from tapeline.cli import user_path


def check_readable(option: str, texts: Iterable[str]) -> None:
    """Checks that files can be read.

    Args:
        option: name of the option, for the message.
        texts: files as the user wrote them.

    Raises:
        InputError: a file is missing, or cannot be read.
    """
    for text in texts:
        try:
            with user_path(text).open("rb"):
                pass
        except OSError as error:
            raise InputError(f"{option}={text}: cannot be read: {error.strerror}") from None


def check_arrays(option: str, pairs: Iterable[str]) -> None:
    """Checks that the files of ``NAME=FILE`` pairs can be read; names are checked later.

    Raises:
        InputError: a file is missing, or cannot be read.
    """
    for pair in pairs:
        name, _, file = pair.partition("=")
        if file:
            check_readable(f"{option}={name}", [file])


def check_bundle(option: str, text: str | None) -> None:
    """Checks that a directory is a bundle; None is none.

    Raises:
        InputError: it is not.
    """
    if text is None:
        return
    try:
        tapeline.Bundle(user_path(text))
    except InputError as error:
        raise InputError(f"{option}={text}: {error}") from None


def check_empty(option: str, text: str | None) -> None:
    """Checks that a directory is new or empty; None is none.

    Raises:
        InputError: it has files, or is a file.
    """
    if text is None:
        return
    path = user_path(text)
    if path.exists() and not path.is_dir():
        raise InputError(f"{option}={text}: it is a file: name a directory, new or empty")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{option}={text}: the directory is not empty: choose another, or empty it")
