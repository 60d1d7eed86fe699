"""Sides of a comparison: a bundle on a device, or its model in the eager context."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from compile_hlo.directions import Signature
from lang_core import EagerExecutionContext, EntryPoint, InputError, WeightSource
from run_iree import DEVICES
from run_iree.archive import ArchiveWeights
from runtime import Session
from tapeline.backends import XLA, model_of
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.compare import precision_of
from tapeline.divergence._example_calls import Arrays
from tapeline.divergence._references import EagerReference, Reference, RunnerReference
from tapeline.divergence._runners import DeviceRunner, Runner, XlaRunner
from transformer_core.models import weights_of


class Side(Protocol):
    """Runner of entry points.

    Attributes:
        name: name for messages.
        dtypes: dtypes of its floats, with that of ``precision_of`` if it multiplies with packed weights.
    """

    @property
    def name(self) -> str: ...

    @property
    def dtypes(self) -> Sequence[str]: ...

    def inside(self, entry_point: str) -> Reference:
        """Returns a reference for the values inside of an entry point."""
        ...

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Returns the results by name; inputs and results are of the shapes of the entry point's specs."""
        ...


class LoweredSide(Side, Protocol):
    """Side with lowered entry points, which can be lowered again with inner tensors as results."""

    def point(self, entry_point: str) -> EntryPoint:
        """Returns the entry point of the model."""
        ...

    def runner(self, weights: WeightSource | None = None) -> Runner:
        """Returns a runner of other graphs of the model; ``weights`` are for a side that has none of its own."""
        ...


class DeviceSide:
    """Bundle in a session on a device."""

    def __init__(self, bundle: Bundle, session: Session) -> None:
        self.name: Final = f"{bundle.path} on {session.device}"
        self.dtypes: Final = _dtypes(bundle)
        self._bundle = bundle
        self._session = session

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Runs an entry point on the device; inputs are of its arguments' shapes, and converted to their dtypes."""
        described = self._bundle.entry_point(entry_point)
        values = [
            int(inputs[argument.name])
            if argument.kind == "scalar"
            else inputs[argument.name].astype(argument.spec.dtype.numpy)
            for argument in described.arguments
        ]
        tensors = self._session.function(entry_point)(*values)
        return {result.name: tensor.numpy() for result, tensor in zip(described.results, tensors, strict=True)}

    def runner(self, weights: WeightSource | None = None) -> Runner:
        """Returns a runner of other graphs of the model on the same device.

        Args:
            weights: weights of the model, for a bundle without an archive.

        Raises:
            InputError: weights are missing, or the device is another engine's.
        """
        archive = self._bundle.path / ARCHIVE
        if weights is None and not archive.is_file():
            raise InputError(f"{self._bundle.path} has no {ARCHIVE}: inner tensors cannot be computed without weights")
        if self._session.target.startswith(XLA):
            return XlaRunner(ArchiveWeights(archive) if weights is None or archive.is_file() else weights)
        if self._session.device not in DEVICES:
            raise InputError(f"{self.name}: inner tensors are computed on devices of IREE and of JAX alone")
        return DeviceRunner(self._session.device, archive if weights is None or archive.is_file() else weights)

    def point(self, entry_point: str) -> EntryPoint:
        """Returns the entry point of the bundle's model."""
        return next(point for point in model_of(self._bundle)[1] if point.name == entry_point)

    def inside(self, entry_point: str) -> Reference:
        """Returns a reference for the values inside of an entry point."""
        return RunnerReference(self.point(entry_point), self.runner())


class EagerSide:
    """Entry points of a model in the eager context.

    Args:
        points: entry points.
        weights: weights of the model.
        name: name for messages.
    """

    def __init__(self, points: Sequence[EntryPoint], weights: WeightSource, name: str) -> None:
        self.name: Final = name
        self.dtypes: Final = tuple({argument.spec.dtype.name for point in points for argument in point.arguments})
        self._points = {point.name: point for point in points}
        self.weights: Final = weights

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Runs an entry point with NumPy; inputs and results are of the shapes of its specs."""
        ctx = EagerExecutionContext(self.weights)
        point = self._points[entry_point]
        values = [inputs[argument.name].astype(argument.spec.dtype.numpy) for argument in point.arguments]
        return {name: tensor.numpy() for name, tensor in point(ctx, *map(ctx.constant, values)).items()}

    def inside(self, entry_point: str) -> Reference:
        """Returns a reference for the values inside of an entry point."""
        return EagerReference(self._points[entry_point], self.weights)


def _dtypes(bundle: Bundle) -> tuple[str, ...]:
    """Returns the dtypes that a bundle computes in."""
    model = bundle.config.model
    return str(model.get("dtype", "f32")), precision_of(model)


@contextlib.contextmanager
def eager_side(bundle: Bundle, checkpoint: WeightSource | None = None) -> Iterator[EagerSide]:
    """Opens the bundle's model in the eager context.

    Args:
        bundle: bundle of the model.
        checkpoint: source of the weights; the bundle's own archive if None.

    Raises:
        InputError: weights are missing.
    """
    model, points = model_of(bundle)
    archive = bundle.path / ARCHIVE
    if checkpoint is not None:
        yield EagerSide(points, weights_of(model, checkpoint), "the eager context")
    elif archive.is_file():
        with ArchiveWeights(archive) as weights:
            yield EagerSide(points, weights, f"the eager context with the weights of {bundle.path}")
    else:
        raise InputError(
            f"{bundle.path} has no {ARCHIVE} with weights for the eager context: give the model's checkpoint"
        )


def check_alike(actual: Bundle, reference: Bundle) -> None:
    """Checks that two bundles have the same arguments and results; dtypes of floats may differ.

    Raises:
        InputError: an entry point or a tensor differs.
    """
    names = [[point.name for point in bundle.config.entry_points] for bundle in (actual, reference)]
    if sorted(names[0]) != sorted(names[1]):
        raise InputError(
            f"mismatched bundles: {actual.path} has the entry points {', '.join(names[0])}; {reference.path} has "
            f"{', '.join(names[1])}: export both with the same entry_points"
        )
    for name in names[0]:
        _check_tensors(actual, reference, name)


def _check_tensors(actual: Bundle, reference: Bundle, name: str) -> None:
    tensors = [_tensors(bundle.entry_point(name)) for bundle in (actual, reference)]
    for key in (*tensors[0], *tensors[1]):
        one, other = (side.get(key, "is not there") for side in tensors)
        if one != other:
            raise InputError(
                f"mismatched bundles: entry point {name!r}, {key[0]} {key[1]!r}: {one} in {actual.path}, {other} in "
                f"{reference.path}: export both with the same sizes"
            )


def _tensors(entry_point: Signature) -> dict[tuple[str, str], Any]:
    specs = {("argument", argument.name): argument.spec for argument in entry_point.arguments}
    specs |= {("result", result.name): result.spec for result in entry_point.results}
    return {
        key: f"{'float' if spec.dtype.is_floating else spec.dtype.name}{list(spec.shape)}"
        for key, spec in specs.items()
    }
