"""Prompts as a caller gives them: one or several, texts or token ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from lang_core import InputError

_ONE: Final = ": call `generate` or `stream` for one"
_IDS: Final = ": give token ids as `token_ids`"


@dataclass(frozen=True, slots=True)
class GivenPrompts:
    """Prompts of a call, as texts or as token ids.

    Attributes:
        several: True if the caller gave a list of prompts, False for one.
        texts: the texts; None if token ids are given.
        token_ids: the token ids of each prompt; None if texts are given.
    """

    several: bool
    texts: Sequence[str] | None
    token_ids: Sequence[Sequence[int]] | None

    @classmethod
    def of(cls, prompt: object, token_ids: object) -> "GivenPrompts":
        """Returns the prompts of a text or a list of texts, or else of token ids or a list of such lists.

        Raises:
            InputError: both or neither are given, or one of another type; names the type.
        """
        check_either("prompt", prompt, token_ids)
        if token_ids is not None:
            several = _are_lists(token_ids)
            ids: Any = token_ids
            return cls(several, None, list(ids) if several else [ids])
        if isinstance(prompt, str):
            return cls(False, [prompt], None)
        if not _is_list(prompt):
            raise InputError(f"`prompt`: expected a text or a list of texts; got {_described(prompt)}")
        return cls(True, checked_texts("prompt", prompt, numbers=_IDS), None)

    @classmethod
    def at_once(cls, prompts: object, token_ids: object) -> "GivenPrompts":
        """Returns the prompts of a list of texts, or else of a list of lists of token ids; errors as for ``of``."""
        check_either("prompt", prompts, token_ids)
        if token_ids is None:
            return cls(True, checked_texts("prompts", prompts, _ONE, numbers=_IDS), None)
        if not _is_list(token_ids) or not all(map(_is_list, _entries(token_ids))):
            raise InputError(f"`token_ids`: expected a list of lists of token ids; got {_described(token_ids)}")
        return cls(True, None, _entries(token_ids))


def check_either(name: str, text: object, token_ids: object) -> None:
    """Checks that a text or its token ids are given, and not both.

    Raises:
        InputError: both or neither are given; ``name`` is the argument that takes the text.
    """
    if (text is None) == (token_ids is None):
        raise InputError(f"give either `{name}` or `token_ids`")


def check_text(name: str, value: object) -> None:
    """Checks that an argument is a text.

    Raises:
        InputError: it is of another type; names the type.
    """
    if not isinstance(value, str):
        raise InputError(f"`{name}`: expected a text; got {_described(value)}")


def checked_texts(name: str, values: object, instead: str = "", *, numbers: str = "") -> list[str]:
    """Returns an argument that is a list of texts.

    Args:
        name: name of the argument.
        values: the argument.
        instead: fix for a single text.
        numbers: fix for integers.

    Raises:
        InputError: it is of another type, or an entry is; names the type.
    """
    if not _is_list(values):
        raise InputError(f"`{name}`: expected a list of texts; got {_described(values)}{instead}")
    texts = _entries(values)
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            hint = numbers if type(text) is int else ""
            raise InputError(f"`{name}`: expected texts; entry {position} is {_described(text)}{hint}")
    return texts


def _are_lists(token_ids: object) -> bool:
    """Returns whether token ids are those of several prompts, not of one."""
    if not _is_list(token_ids):
        raise InputError(
            f"`token_ids`: expected a list of token ids, or a list of such lists; got {_described(token_ids)}"
        )
    entries = _entries(token_ids)
    lists = [_is_list(one) for one in entries]
    if any(lists) and not all(lists):
        position = lists.index(False)
        raise InputError(
            f"`token_ids`: expected token ids, or lists of them; entry {position} is {_described(entries[position])} "
            "beside lists"
        )
    return any(lists)


def _entries(values: Any) -> list[Any]:
    return list(values)


def _is_list(value: object) -> bool:
    """Returns whether a value has entries in an order, as a list, an array or a column of a table."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    if isinstance(value, str | bytes | bytearray | Mapping):
        return False
    return all(hasattr(value, name) for name in ("__len__", "__getitem__", "__iter__"))


def _described(value: object) -> str:
    """Returns the type and the value of an argument for a message."""
    return f"{type(value).__name__} ({value!r:.80})" if value is not None else "None"
