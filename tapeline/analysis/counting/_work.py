"""Work of one call of an entry point on one device."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Collective(NamedTuple):
    """Tensor that devices exchange.

    Attributes:
        kind: ``all-reduce``, ``all-gather`` or ``all-to-all``.
        bytes: bytes of the result on each device.
        devices: number of devices that take part.
        axes: axes of the mesh along which they stand.
        path: path of the module that needs it, numbers of layers as ``*``.
    """

    kind: str
    bytes: int
    devices: int
    axes: str
    path: str


@dataclass(slots=True)
class Work:
    """Work of a part of a program, or of all of it, on one device.

    Attributes:
        flops: additions and multiplications by dtype of the operands.
        memory_bytes: bytes that contractions and indexing read and write: weights, caches, activations.
        activation_bytes: greatest number of bytes of tensors that are alive at one time, besides weights and caches.
        collectives: how often each occurs in the program.
        calls: how often each is run: more often than it occurs in loops.
    """

    flops: Counter[str] = field(default_factory=Counter)
    memory_bytes: float = 0
    activation_bytes: int = 0
    collectives: Counter[Collective] = field(default_factory=Counter)
    calls: Counter[Collective] = field(default_factory=Counter)

    def add(self, other: "Work", rounds: float = 1) -> None:
        """Adds work that is done so many times; the peak of activations is the caller's."""
        for dtype, count in other.flops.items():
            self.flops[dtype] += count * rounds  # pyright: ignore[reportArgumentType] - counts may be averages
        self.memory_bytes += other.memory_bytes * rounds
        self.collectives.update(other.collectives)
        for collective, count in other.calls.items():
            self.calls[collective] += count * rounds  # pyright: ignore[reportArgumentType] - likewise
