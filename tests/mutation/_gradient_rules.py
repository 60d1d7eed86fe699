"""Mutants of gradient rules: contributions doubled, left out, swapped."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final

from compile_dag.gradient import COMPOSITE_RULES, RULES
from tests.mutation._mutant import Mutant, Replaced

TABLES: Final = (("gradient", RULES), ("composite", COMPOSITE_RULES))
# Operands beyond these are rare, and the rules give the same to each of them.
_MOST: Final = 3


class Listening:
    """A gradient rule that notes for which operands it was asked.

    Attributes:
        operands: their positions.
    """

    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.operands: set[int] = set()

    def __call__(self, step: Any, *cotangents: Any) -> Any:
        return [
            thunk and functools.partial(self._asked, i, thunk) for i, thunk in enumerate(self.rule(step, *cotangents))
        ]

    def _asked(self, index: int, thunk: Callable[[], Any]) -> Any:
        result = thunk()
        if result is not None:
            self.operands.add(index)
        return result


def gradient_mutants(asked: dict[str, set[int]], tests: dict[str, tuple[str, ...]]) -> Iterator[Mutant]:
    """Mutants of every rule.

    Args:
        asked: the operands for which each rule was asked by the tests, by ``<table>/<op>``.
        tests: those in which it was.
    """
    for kind, table in TABLES:
        for name, rule in table.items():
            key = f"{kind}/{name}"
            changes = {f"operand {i} {what}": (i, what) for i in sorted(asked[key]) if i < _MOST for what in _WHATS}
            if not changes:  # no test has asked: say so, by a change that nothing can notice
                changes = {"never asked": (0, "left out")}
            for text, (index, what) in changes.items():
                broken = functools.partial(_broken, rule, index, what)
                applied = functools.partial(Replaced, [(table, name, broken)])
                yield Mutant(f"{key}/{text}", applied, tests.get(key, ()))


_WHATS: Final = ("doubled", "left out", "negated")


def _broken(rule: Any, index: int, what: str, step: Any, *cotangents: Any) -> Any:
    thunks = list(rule(step, *cotangents))
    thunk = thunks[index] if index < len(thunks) else None
    if thunk is not None:
        thunks[index] = None if what == "left out" else functools.partial(_changed, step, thunk, what)
    return thunks


def _changed(step: Any, thunk: Callable[[], Any], what: str) -> Any:
    result = thunk()
    if result is None:
        return None
    return step.ops.add(result, result) if what == "doubled" else step.ops.negate(result)
