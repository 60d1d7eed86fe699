"""Faults of compilers, each with the function that avoids it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from compile_hlo.emit import Overrides, Watcher
from lang_core import GraphError

Override = Callable[..., Any]

# Version of IREE that the faults were seen in.
IREE: Final = "3.13"
INTERPRETER: Final = "interpreter"
"""Name beside those of targets: StableHLO's reference interpreter."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a compiler, and its workaround.

    Attributes:
        name: name of the function that avoids it.
        summary: description of the fault.
        targets: targets on which it does; ``interpreter`` is StableHLO's reference interpreter, ``xla`` is XLA.
        cases: names of the cases of tests/emission each of which shows it; empty if none does.
        version: version of IREE, or of the other program with the fault, that it was seen in.
        overrides: replacements, by point of emission.
        watch: factory of an observer of a function's values, if the fault needs one.
    """

    name: str
    summary: str
    targets: tuple[str, ...]
    cases: tuple[str, ...]
    version: str
    overrides: dict[str, Override] = field(default_factory=dict)
    watch: Callable[[], Watcher] | None = None

    def at(self, point: str) -> Callable[[Override], Override]:
        """Registers the replacement at another point.

        Raises:
            GraphError: the fault has an override of the point already.
        """

        def register(override: Override) -> Override:
            if point in self.overrides:
                raise GraphError(f"fault {self.name!r} has an override of {point!r} already")
            self.overrides[point] = override
            return override

        return register


def fault(
    *points: str,
    targets: str,
    cases: str,
    version: str = IREE,
    watch: Callable[[], Watcher] | None = None,
) -> Callable[[Override], Fault]:
    """Makes a fault of the function that avoids it; the first paragraph of its docstring describes the fault.

    Args:
        *points: points of emission that the function overrides.
        targets: names of targets, with spaces between them.
        cases: names of cases, with spaces between them.
        version: version of IREE, or of the other program with the fault.
        watch: factory as in ``Fault``.
    """

    def register(override: Override) -> Fault:
        summary = " ".join((override.__doc__ or "").split("\n\n")[0].split())
        made = Fault(override.__name__, summary, tuple(targets.split()), tuple(cases.split()), version, watch=watch)
        for point in points:
            made.at(point)(override)
        return made

    return register


def overrides_of(faults: Iterable[Fault]) -> Overrides:
    """Returns the workarounds of faults. If several override one point, the first is called first."""
    functions: dict[str, Override] = {}
    watch = None
    for avoided in reversed(list(faults)):
        for point, override in avoided.overrides.items():
            inner = functions.get(point)
            functions[point] = override if inner is None else partial(around, override, inner)
        watch = avoided.watch or watch
    return Overrides(functions, watch)


def around(outer: Override, inner: Override, plain: Override, *args: Any) -> Any:
    """Calls an override with another override as its plain function."""
    return outer(partial(inner, plain), *args)
