"""Meshes of devices: named axes with sizes, and how they cut a tensor."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lang_core._errors import ConfigError, near_names

MESH_AXES: Final = ("dp", "tp", "ep", "fsdp")
"""Axes that a mesh may have: rows of the batch; heads, features and vocabulary; experts; parameters while training."""

Axes = tuple[str | None, ...]
"""Per dimension of a tensor the axis of the mesh that cuts it, None where nothing does.

``tp:2`` is the part of the axis ``tp`` that cuts into two: where four devices stand along it, the first two have one
half of the tensor, and the others have the other.
"""

_FORM: Final = "give axes as 'tp=2,dp=2'"


@dataclass(frozen=True, slots=True)
class MeshShape:
    """Named axes of a mesh of devices with their sizes, in order.

    Attributes:
        axes: pairs of an axis of ``MESH_AXES`` and how many devices stand along it.

    Raises:
        ConfigError: the mesh lacks axes, an axis is unknown or given twice, or a size is not a positive integer.

    >>> mesh = MeshShape.parse("tp=2,dp=3")
    >>> mesh.size, mesh.size_of("tp"), mesh.size_of("ep")
    (6, 2, 1)
    >>> mesh.local_shape((6, 8, 5), ("dp", "tp", None))
    (2, 4, 5)
    """

    axes: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise ConfigError(f"mesh: expected at least one axis, found none; {_FORM}")
        seen: set[str] = set()
        for name, size in self.axes:
            if name not in MESH_AXES:
                hint = near_names(str(name), MESH_AXES)
                raise ConfigError(f"mesh: axis {name!r} not found; available: {', '.join(MESH_AXES)}{hint}")
            if name in seen:
                raise ConfigError(f"mesh {self}: axis {name!r} is given twice; give each axis one size")
            if type(size) is not int or size < 1:
                raise ConfigError(f"mesh: the size of axis {name!r} is an integer of at least 1, found {size!r}")
            seen.add(name)

    @staticmethod
    def parse(text: str) -> "MeshShape":
        """Returns the mesh that a text such as ``tp=2,dp=2`` describes.

        Raises:
            ConfigError: the text is of another form, or does not describe a mesh.
        """
        return MeshShape(tuple(_axis(part, text) for part in text.split(",")) if text.strip() else ())

    @staticmethod
    def of(sizes: Mapping[str, int]) -> "MeshShape":
        """Returns the mesh of sizes by axis."""
        return MeshShape(tuple(sizes.items()))

    @property
    def size(self) -> int:
        """Number of devices."""
        return math.prod(size for _, size in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """Axes, in order."""
        return tuple(name for name, _ in self.axes)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis, in order."""
        return dict(self.axes)

    def size_of(self, axis: str | None) -> int:
        """Returns into how many parts an axis, or part of one, cuts a dimension: 1 if the mesh lacks it."""
        return math.prod(self.factors_of(axis))

    def factors_of(self, axis: str | None) -> tuple[int, ...]:
        """Returns the prime factors of the size of an axis, least first; of a part of one as many of the first as fit.

        >>> mesh = MeshShape.parse("tp=12")
        >>> mesh.factors_of("tp"), mesh.factors_of("tp:4"), mesh.factors_of("tp:6")
        ((2, 2, 3), (2, 2), (2,))
        """
        name, _, most = ("" if axis is None else axis).partition(":")
        primes = list(_primes(next((size for own, size in self.axes if own == name), 1)))
        parts = int(most or math.prod(primes))
        while parts % math.prod(primes):
            primes.pop()
        return tuple(primes)

    def part_of(self, axis: str, count: int) -> str | None:
        """Returns the part of an axis that cuts into so many, each held by a group of devices; None if it has none.

        >>> MeshShape.parse("tp=8").part_of("tp", 2)
        'tp:2'
        """
        part = f"{axis}:{count}"
        return part if 1 < self.size_of(part) == count < self.size_of(axis) else None

    @staticmethod
    def axis_of(part: str) -> str:
        """Returns the axis of an axis or a part of one.

        >>> MeshShape.axis_of("tp:2"), MeshShape.axis_of("tp")
        ('tp', 'tp')
        """
        return part.partition(":")[0]

    def local_shape(self, shape: Sequence[int], axes: Sequence[str | None]) -> tuple[int, ...]:
        """Returns the shape of one device's part of a tensor.

        Args:
            shape: the whole tensor's.
            axes: per dimension the axis that cuts it.

        Raises:
            ConfigError: the axes are not one per dimension, or one of them does not divide its dimension.
        """
        if len(axes) != len(shape):
            raise ConfigError(f"mesh {self}: expected one axis or None per dimension of {list(shape)}, found {axes!r}")
        for dimension, (extent, axis) in enumerate(zip(shape, axes, strict=True)):
            if extent % self.size_of(axis):
                raise ConfigError(
                    f"mesh {self}: {axis}={self.size_of(axis)} does not divide dimension {dimension} of "
                    f"{list(shape)}; {axis} may be {', '.join(map(str, self.divisors(extent)))}"
                )
        return tuple(extent // self.size_of(axis) for extent, axis in zip(shape, axes, strict=True))

    @staticmethod
    def divisors(extent: int, limit: int = 8) -> tuple[int, ...]:
        """Returns the least sizes of an axis that divide a dimension.

        >>> MeshShape.divisors(12)
        (1, 2, 3, 4, 6, 12)
        """
        return tuple(size for size in range(1, min(extent, 4096) + 1) if extent % size == 0)[:limit]

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.axes)

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def _primes(number: int) -> Iterator[int]:
    prime = 2
    while number > 1:
        if number % prime:
            prime += 1
        else:
            yield prime
            number //= prime


def _axis(part: str, text: str) -> tuple[str, int]:
    name, equals, size = (piece.strip() for piece in part.partition("="))
    if not (name and equals and size.isdecimal()):
        raise ConfigError(f"mesh {text!r}: {part!r} is no axis with a size; {_FORM}")
    return name, int(size)
