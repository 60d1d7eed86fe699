"""Mutants: one change to one rule."""

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """One rule, broken in one way.

    Attributes:
        name: ``<kind of rule>/<op>/<what is broken>``, unique.
        applied: breaks the rule for as long as it is entered.
        tests: those that may notice, as selectors of test ids; the likeliest first.
    """

    name: str
    applied: Callable[[], AbstractContextManager[None]]
    tests: tuple[str, ...]


class Replaced:
    """Puts other values into mappings or attributes, and puts the old ones back."""

    def __init__(self, changes: Iterable[tuple[Any, str, Any]]) -> None:
        self._changes = tuple(changes)
        self._before: list[Any] = []

    def __enter__(self) -> None:
        for holder, key, value in self._changes:
            if isinstance(holder, dict):
                self._before.append(holder[key])
                holder[key] = value
            else:
                self._before.append(getattr(holder, key))
                setattr(holder, key, value)

    def __exit__(self, *error: object) -> None:
        for (holder, key, _), value in zip(self._changes, self._before, strict=True):
            if isinstance(holder, dict):
                holder[key] = value
            else:
                setattr(holder, key, value)
