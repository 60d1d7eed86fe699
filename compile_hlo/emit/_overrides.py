"""Points at which a module's text may be written otherwise than the StableHLO specification suggests.

An emission rule follows the specification. Compilers have faults; the workaround of a fault stands outside of this room
(``compile_hlo/quirks``) as a function that takes the place of an overridable one.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from compile_dag import Node, Value

P = ParamSpec("P")
R = TypeVar("R")


class Watcher(Protocol):
    """Follows the values of one function while its nodes are written."""

    def follow(self, node: Node) -> None:
        """Takes the next node, which has been written."""
        ...

    def forget(self, value: Value) -> None:
        """Drops the facts of a value that is not used any more."""
        ...


@dataclass(frozen=True, slots=True)
class Overrides:
    """Functions that take the place of overridable ones.

    Attributes:
        functions: by point; each is called with the plain function before that one's own arguments.
        watch: factory of an observer of a function's values; None if nothing does.
        exact_products: whether products with packed weights take x in f32 if their activations are exact; otherwise
            in integers of 16 bits, as kernels of CPUs do.
        row_writes: whether writes into rows of tensors seen as matrices are written as such, without the reshapes.
    """

    functions: Mapping[str, Callable[..., Any]] = field(default_factory=lambda: MappingProxyType({}))
    watch: Callable[[], Watcher] | None = None
    exact_products: bool = False
    row_writes: bool = False


# Plain StableHLO.
NO_OVERRIDES: Final = Overrides()
"""Overrides of plain StableHLO: none."""

EXACT_PRODUCTS: Final = Overrides(exact_products=True)
"""Plain StableHLO for compilers that have no kernels of integers."""


class Overridden(Protocol):
    """Anything that has overrides: an emitter."""

    @property
    def overrides(self) -> Overrides: ...


E = TypeVar("E", bound=Overridden)


def overridable(point: str) -> Callable[[Callable[Concatenate[E, P], R]], Callable[Concatenate[E, P], R]]:
    """Makes a function of an emitter a point, named as the StableHLO op that it writes if it writes one."""

    def decorate(plain: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
        @functools.wraps(plain)
        def call(emitter: E, *args: P.args, **kwargs: P.kwargs) -> R:
            override = emitter.overrides.functions.get(point)
            return plain(emitter, *args, **kwargs) if override is None else override(plain, emitter, *args, **kwargs)

        return call

    return decorate
