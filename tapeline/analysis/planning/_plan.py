"""Plan: bytes, exchanges and times of a model's entry points on each device of a mesh."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lang_core import Axes, EntryPoint, InputError, MeshShape, TensorSpec, i8
from tapeline.analysis.counting import TensorAxes, Work, count_work
from tapeline.analysis.planning._hardware import Hardware
from tapeline.analysis.planning._roofline import Times, sent_bytes, times

Points = Callable[[int], tuple[EntryPoint, ...]]
"""Entry points of a model by number of sequences, B."""

_MOST_SEQUENCES: Final = 1 << 20
_TOKENS: Final = "token_ids"


@dataclass(frozen=True, slots=True)
class MeshLayout:
    """Mesh, and how a model lies on it.

    Attributes:
        mesh: the mesh.
        parameters: axes of each parameter by path; those that are missing are whole on each device.
        tensors: axes of arguments and results, of entry points and their number of sequences.
        notes: sentences on replicated tensors.
    """

    mesh: MeshShape
    parameters: Mapping[str, Axes]
    tensors: Callable[[tuple[EntryPoint, ...], int], TensorAxes]
    notes: tuple[str, ...] = ()

    def axes(self, path: str, spec: TensorSpec) -> Axes:
        """Returns the axes of a parameter."""
        return self.parameters.get(path, (None,) * spec.ndim)

    def local_bytes(self, spec: TensorSpec, axes: Axes) -> int:
        """Returns the bytes of one device's part of a tensor."""
        return TensorSpec(self.mesh.local_shape(spec.shape, axes), spec.dtype).nbytes


@dataclass(frozen=True, slots=True)
class EntryPlan:
    """Entry point on one device.

    Attributes:
        name: name of the entry point.
        tokens: number of tokens that one call takes, of all sequences and devices; None if it takes none.
        work: work of one call.
        times: least times; None without hardware.
    """

    name: str
    tokens: int | None
    work: Work
    times: Times | None

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as JSON values."""
        rows = [
            {**collective._asdict(), "occurs": count, "calls": self.work.calls[collective]}
            for collective, count in self.work.collectives.items()
        ]
        told = {
            "name": self.name,
            "tokens": self.tokens,
            "flops": dict(self.work.flops),
            "memory_bytes": int(self.work.memory_bytes),
            "activation_bytes": self.work.activation_bytes,
            "collectives": rows,
            "sent_bytes": int(sum(sent_bytes(row) * count for row, count in self.work.calls.items())),
        }
        if self.times is None:
            return told
        seconds = {**self.times._asdict(), "total": self.times.total}
        rate = {} if self.tokens is None else {"tokens_per_second": self.tokens / self.times.total}
        return told | {"seconds": seconds, "bound": self.times.bound, **rate}


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Entry points with a number of sequences, and a device's memory for them.

    Attributes:
        batch: number of sequences of the whole mesh, B.
        weights: bytes of weights.
        packed: bytes of those that are packed.
        caches: bytes of caches and states by kind.
        entries: the entry points.
    """

    batch: int
    weights: int
    packed: int
    caches: Mapping[str, int]
    entries: tuple[EntryPlan, ...]

    @property
    def activations(self) -> int:
        """Greatest bytes of other tensors at a time."""
        return max(entry.work.activation_bytes for entry in self.entries)

    @property
    def total(self) -> int:
        """Bytes that a device has to have."""
        return self.weights + sum(self.caches.values()) + self.activations

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as JSON values."""
        memory = {
            "weights": self.weights,
            "packed_weights": self.packed,
            "caches": dict(self.caches),
            "activations": self.activations,
            "total": self.total,
        }
        return {
            "batch": self.batch,
            "bytes_per_device": memory,
            "entry_points": [entry.as_json() for entry in self.entries],
        }


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """Plan of a model on a mesh.

    Attributes:
        layout: mesh, and how the model lies on it.
        hardware: figures of each device; None if none were given.
        asked: plan for the number of sequences that was asked for.
        largest: plan for the most sequences that fit; None if none fits, or without hardware.
    """

    layout: MeshLayout
    hardware: Hardware | None
    asked: BatchPlan
    largest: BatchPlan | None

    @property
    def fits(self) -> bool | None:
        """True if the requested plan fits a device; None without hardware."""
        return None if self.hardware is None else self.asked.total <= self.hardware.memory_bytes

    def as_json(self) -> dict[str, Any]:
        """Returns the plan as JSON values."""
        told: dict[str, Any] = {"mesh": self.layout.mesh.sizes, "devices": self.layout.mesh.size}
        told["notes"] = list(self.layout.notes)
        told["asked"] = self.asked.as_json()
        if self.hardware is None:
            return told
        told["hardware"] = {"name": self.hardware.name, "memory_bytes": int(self.hardware.memory_bytes)}
        largest = None if self.largest is None else self.largest.as_json()
        return told | {"fits": self.fits, "largest_batch": largest}


def plan(points: Points, batch: int, layout: MeshLayout, hardware: Hardware | None) -> DevicePlan:
    """Plans a model on a mesh; records it without reading weights or compiling.

    Args:
        points: entry points by number of sequences.
        batch: number of sequences that is asked for.
        layout: mesh, and how the model lies on it.
        hardware: figures of a device.

    Raises:
        InputError: the mesh has more devices than the hardware, or the hardware does not say how they are joined.
    """
    if hardware is not None:
        _check(layout.mesh, hardware)
    asked = _planned(points(batch), batch, layout, hardware)
    largest = None if hardware is None else _largest(points, asked, layout, hardware)
    return DevicePlan(layout, hardware, asked, largest)


def _check(mesh: MeshShape, hardware: Hardware) -> None:
    if mesh.size > hardware.devices:
        raise InputError(
            f"mesh {mesh} has {mesh.size} devices, and {hardware.name} {hardware.devices}: take a smaller mesh, or a "
            f"hardware file whose `devices` and links are those of your machines"
        )
    if mesh.size > 1 and hardware.link_bandwidth is None:
        raise InputError(
            f"mesh {mesh}: {hardware.name} has no `link_bandwidth`, which several devices need: give a hardware file "
            f"that has it"
        )


def _planned(points: Sequence[EntryPoint], batch: int, layout: MeshLayout, hardware: Hardware | None) -> BatchPlan:
    axes = layout.tensors(tuple(points), batch)
    weights: dict[str, TensorSpec] = {}
    entries: list[EntryPlan] = []
    caches: dict[str, int] = {}
    for point in points:
        counted = count_work(point, layout.mesh, layout.axes, axes)
        weights.update(counted.parameters)
        tokens = next((a.spec.size for a in point.arguments if a.name == _TOKENS), None)
        seconds = None if hardware is None else times(counted.work, hardware)
        entries.append(EntryPlan(point.name, tokens, counted.work, seconds))
        caches = max(caches, _caches(point, layout, axes), key=lambda kinds: sum(kinds.values()))
    local = {path: layout.local_bytes(spec, layout.axes(path, spec)) for path, spec in weights.items()}
    packed = sum(size for path, size in local.items() if weights[path].dtype is i8)
    return BatchPlan(batch, sum(local.values()), packed, caches, tuple(entries))


def _caches(point: EntryPoint, layout: MeshLayout, axes: TensorAxes) -> dict[str, int]:
    """Returns the bytes that a call updates in place, by the last part of the names."""
    kinds: dict[str, int] = {}
    for argument in point.arguments:
        if argument.alias_result is not None:
            kind = argument.name.rpartition(".")[2]
            size = layout.local_bytes(argument.spec, axes(argument.name, argument.spec))
            kinds[kind] = kinds.get(kind, 0) + size
    return kinds


def _largest(points: Points, asked: BatchPlan, layout: MeshLayout, hardware: Hardware) -> BatchPlan | None:
    """Returns the plan of the most sequences that fit: caches and activations grow in proportion, weights do not."""
    step, room = layout.mesh.size_of("dp"), hardware.memory_bytes
    best = asked if asked.total <= room else None
    tried = asked
    while True:
        grown = max(1, tried.total - tried.weights) / tried.batch
        batch = min(int((room - tried.weights) / grown) // step * step, _MOST_SEQUENCES)
        if best is not None and batch <= best.batch:
            return best
        if batch < step or (best is None and batch >= tried.batch):
            return best
        tried = _planned(points(batch), batch, layout, hardware)
        if tried.total <= room:
            best = tried
