"""Table of parameters with a size that does not grow with the number of layers."""

import functools
import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Final

from lang_core import GraphError, TensorSpec

_INDEX: Final = re.compile(r"(?<=\.)\d+(?=\.)")
_PLACE: Final = "\0"


class ParameterTable(Mapping[str, TensorSpec]):
    """Specs by path, in the order of first use if layers are alike.

    ``layers.0.w`` to ``layers.9999.w`` of one spec take one row: the path without its first number, and the range of
    the numbers. Rows that follow one another and have the same numbers are gone through together, layer by layer.

    >>> table = ParameterTable()
    >>> for index in range(3):
    ...     table.add(f"layers.{index}.w", TensorSpec((2,), "f32"))
    ...     table.add(f"layers.{index}.b", TensorSpec((1,), "f32"))
    >>> list(table)[:4], len(table), table["layers.2.b"]
    (['layers.0.w', 'layers.0.b', 'layers.1.w', 'layers.1.b'], 6, f32[1])
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, TensorSpec], _Numbers] = {}
        self._specs: dict[str, list[TensorSpec]] = {}

    def add(self, path: str, spec: TensorSpec) -> None:
        """Adds a parameter, unless it is there.

        Raises:
            GraphError: it is there with another spec.
        """
        template, number = _split(path)
        numbers = self._rows.get((template, spec))
        for other in self._specs.get(template, ()):
            if other != spec and number in self._rows[template, other]:
                raise GraphError(
                    f"parameter {path!r}: the model reads it as {other!r} and as {spec!r}: a path stands for one weight"
                )
        if numbers is None:
            numbers = self._rows[template, spec] = _Numbers()
            self._specs.setdefault(template, []).append(spec)
        numbers.add(number)

    def update(self, other: Mapping[str, TensorSpec]) -> None:
        """Adds all parameters of another table."""
        for path, spec in other.items():
            self.add(path, spec)

    def __getitem__(self, path: str) -> TensorSpec:
        template, number = _split(path)
        for spec in self._specs.get(template, ()):
            if number in self._rows[template, spec]:
                return spec
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        for _, group in itertools.groupby(self._rows.items(), key=lambda row: row[1].bounds):
            rows = list(group)
            for number in rows[0][1]:
                for (template, _), _ in rows:
                    yield template.replace(_PLACE, str(number))

    def __len__(self) -> int:
        return sum(len(numbers) for numbers in self._rows.values())

    def __repr__(self) -> str:
        return f"ParameterTable({dict(self)})"


@functools.lru_cache(maxsize=256)  # a lowering asks some four times for each parameter of a layer
def _split(path: str) -> tuple[str, int]:
    """Splits a path into itself with a mark for its first number, and the number; 0 if it has none."""
    match = _INDEX.search(path)
    if match is None or str(int(match[0])) != match[0]:  # a number of another spelling would not come back
        return path, 0
    return f"{path[: match.start()]}{_PLACE}{path[match.end() :]}", int(match[0])


class _Numbers:
    """Set of integers as ranges: ``bounds`` is begin, end, begin, end, ..., ascending."""

    __slots__ = ("bounds",)

    def __init__(self) -> None:
        self.bounds: list[int] = []

    def add(self, number: int) -> None:
        bounds = self.bounds
        at = bisect_right(bounds, number)
        if at % 2:  # inside a range
            return
        if at and bounds[at - 1] == number:  # right behind a range
            bounds[at - 1] = number + 1
            if at < len(bounds) and bounds[at] == number + 1:
                del bounds[at - 1 : at + 1]
        elif at < len(bounds) and bounds[at] == number + 1:
            bounds[at] = number
        else:
            bounds[at:at] = (number, number + 1)

    def __contains__(self, number: int) -> bool:
        return bisect_right(self.bounds, number) % 2 == 1

    def __iter__(self) -> Iterator[int]:
        for begin, end in zip(self.bounds[::2], self.bounds[1::2], strict=True):
            yield from range(begin, end)

    def __len__(self) -> int:
        return sum(self.bounds[1::2]) - sum(self.bounds[::2])
