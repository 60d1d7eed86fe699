"""Grid of devices: a mesh with its axes split into primes, so that a dimension can be cut by part of an axis."""

import math
from collections.abc import Iterable, Sequence

from lang_core import Axes, MeshShape, TensorSpec

Cuts = tuple[int, ...]
"""Parts of axes that cut one dimension, the slowest first."""

Layout = tuple[Cuts, ...]
"""Cuts of each dimension of a tensor."""


def whole(ndim: int) -> Layout:
    """Returns the layout of a tensor that every device has whole."""
    return ((),) * ndim


class DeviceGrid:
    """Mesh of devices, with its axes taken apart into primes: an axis of 4 is two parts of 2.

    Args:
        mesh: axes with their sizes.
    """

    def __init__(self, mesh: MeshShape) -> None:
        self._sizes: list[int] = []
        self._axes: list[str] = []
        self._mesh = mesh
        for axis, _ in mesh:
            for prime in mesh.factors_of(axis):
                self._sizes.append(prime)
                self._axes.append(axis)

    def size(self, cuts: Iterable[int]) -> int:
        """Returns into how many parts these cuts divide."""
        return math.prod(self._sizes[cut] for cut in cuts)

    def size_of(self, cut: int) -> int:
        """Returns the size of one cut."""
        return self._sizes[cut]

    def axes(self, cuts: Iterable[int]) -> str:
        """Returns the names of the axes of these cuts, joined by commas."""
        return ",".join(dict.fromkeys(self._axes[cut] for cut in sorted(cuts)))

    def layout(self, axes: Sequence[str | None] | Axes) -> Layout:
        """Returns the layout of a tensor, of its axis per dimension."""
        return tuple(() if axis is None else self._cuts(axis) for axis in axes)

    def _cuts(self, axis: str) -> Cuts:
        name, count = self._mesh.axis_of(axis), len(self._mesh.factors_of(axis))
        return tuple(i for i, own in enumerate(self._axes) if own == name)[:count]

    def parts(self, layout: Layout) -> int:
        """Returns into how many different parts a tensor of this layout is cut."""
        return math.prod(self.size(cuts) for cuts in layout)

    def local_bytes(self, spec: TensorSpec, layout: Layout) -> int:
        """Returns the bytes of one device's part of a tensor."""
        sizes = (-(-extent // self.size(cuts)) for extent, cuts in zip(spec.shape, layout, strict=True))
        return math.prod(sizes) * spec.dtype.itemsize
