"""What can be compared: a bundle on a device, or its model in the eager context."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from compile_hlo.directions import Signature
from lang_core import EagerExecutionContext, Encoding, EntryPoint, InputError, WeightSource, encoding_named
from run_iree import Session
from run_iree.archive import ArchiveWeights
from tapeline.bundle import ARCHIVE, Bundle
from tapeline.compare import PACKED
from tapeline.divergence._example_calls import Arrays
from tapeline.divergence._references import EagerReference, Reference, RunnerReference
from tapeline.divergence._runners import DeviceRunner, Runner
from transformer_core import STORED, keep_packed
from transformer_core.models import Model, entry_points, load_model, weights_of


class Side(Protocol):
    """Something that runs entry points.

    Attributes:
        name: for messages.
        dtypes: of its floats; ``PACKED`` where it multiplies with packed weights.
    """

    @property
    def name(self) -> str: ...

    @property
    def dtypes(self) -> Sequence[str]: ...

    def inside(self, entry_point: str) -> Reference:
        """The same entry point, for a look inside."""
        ...

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """The results by name."""
        ...


class LoweredSide(Side, Protocol):
    """Side whose entry points were lowered, so that they can be lowered again with inner tensors as results."""

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
        """Runs it on the device; inputs are converted to the dtypes that the bundle has."""
        described = self._bundle.entry_point(entry_point)
        values = [
            int(inputs[each.name]) if each.kind == "scalar" else inputs[each.name].astype(each.spec.dtype.numpy)
            for each in described.arguments
        ]
        tensors = self._session.function(entry_point)(*values)
        return {result.name: tensor.numpy() for result, tensor in zip(described.results, tensors, strict=True)}

    def runner(self, weights: WeightSource | None = None) -> DeviceRunner:
        """What runs other graphs of the model as the bundle does.

        Args:
            weights: of the model, for a bundle that has no archive.

        Raises:
            InputError: there are no weights.
        """
        archive = self._bundle.path / ARCHIVE
        if archive.is_file():
            return DeviceRunner(self._session.device, archive)
        if weights is None:
            raise InputError(f"{self._bundle.path} has no {ARCHIVE}, so nothing can be shown of its inside")
        return DeviceRunner(self._session.device, weights)

    def point(self, entry_point: str) -> EntryPoint:
        """The entry point of the bundle's model."""
        return next(each for each in model_of(self._bundle)[1] if each.name == entry_point)

    def inside(self, entry_point: str) -> Reference:
        """The same entry point, for a look inside."""
        return RunnerReference(self.point(entry_point), self.runner())


class EagerSide:
    """Entry points of a model in the eager context."""

    def __init__(self, points: Sequence[EntryPoint], weights: WeightSource, name: str) -> None:
        self.name: Final = name
        self.dtypes: Final = tuple({each.spec.dtype.name for point in points for each in point.arguments})
        self._points = {point.name: point for point in points}
        self.weights: Final = weights

    def run(self, entry_point: str, inputs: Mapping[str, np.ndarray]) -> Arrays:
        """Runs it with NumPy."""
        ctx = EagerExecutionContext(self.weights)
        point = self._points[entry_point]
        values = [inputs[each.name].astype(each.spec.dtype.numpy) for each in point.arguments]
        return {name: tensor.numpy() for name, tensor in point(ctx, *map(ctx.constant, values)).items()}

    def inside(self, entry_point: str) -> Reference:
        """The same entry point, for a look inside."""
        return EagerReference(self._points[entry_point], self.weights)


def _dtypes(bundle: Bundle) -> tuple[str, ...]:
    """What it computes in."""
    packed = bundle.config.model.get("quantize", "none") != "none"
    return (str(bundle.config.model.get("dtype", "f32")), *((PACKED,) if packed else ()))


def _encodings(bundle: Bundle) -> dict[str, Encoding]:
    """Of the parameters that are packed, by path."""
    packed = {path: each["encoding"] for path, each in bundle.config.parameters.items() if "encoding" in each}
    return {path: encoding_named(name) for path, name in packed.items()}


def model_of(bundle: Bundle) -> tuple[Model[Any], tuple[EntryPoint, ...]]:
    """The model that was exported, and its entry points at the exported sizes; no weight is read.

    Raises:
        InputError: the bundle does not hold what is needed.
    """
    fields = bundle.config.model
    try:
        encoding = fields.get("quantize", "none")
        packed = None if encoding in ("none", STORED) else encoding
        model = load_model(bundle.path, fields["dtype"], fields["layers"], weights=False, quantize=packed)
        if encoding == STORED:
            keep_packed(model, _encodings(bundle), model.dtype)
        names = [each.name for each in bundle.config.entry_points]
        sizes = {name: fields[name] for name in ("batch", "sequence", "max_sequence")}
        caching = fields.get("caching", {})
        sizes |= {name: caching[name] for name in ("positions", "window_caches", "score_tokens") if name in caching}
    except KeyError as error:
        raise InputError(
            f"{bundle.path}: kernel_config.json does not say the model's {error}: export the bundle again"
        ) from None
    return model, entry_points(model, names=names, **sizes)


@contextlib.contextmanager
def eager_side(bundle: Bundle, checkpoint: WeightSource | None = None) -> Iterator[EagerSide]:
    """The bundle's model in the eager context.

    Args:
        bundle: says which model, at which sizes.
        checkpoint: where its weights come from; where None, the bundle's own archive.

    Raises:
        InputError: there are no weights.
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
            f"{bundle.path} has no {ARCHIVE} that the eager context could read: give the checkpoint with --model"
        )


def check_alike(found: Bundle, reference: Bundle) -> None:
    """Checks that two bundles take and give the same tensors; floats may be of another dtype.

    Raises:
        InputError: they do not.
    """
    pairs = [(each.config.entry_points, each.path) for each in (found, reference)]
    names = [[point.name for point in points] for points, _ in pairs]
    if sorted(names[0]) != sorted(names[1]):
        raise InputError(
            f"mismatched bundles: {found.path} has the entry points {', '.join(names[0])}; {reference.path} has "
            f"{', '.join(names[1])}: export both with the same --entry_points"
        )
    for name in names[0]:
        _check_tensors(found, reference, name)


def _check_tensors(found: Bundle, reference: Bundle, name: str) -> None:
    tensors = [_tensors(bundle.entry_point(name)) for bundle in (found, reference)]
    for key in (*tensors[0], *tensors[1]):
        one, other = (each.get(key, "is not there") for each in tensors)
        if one != other:
            raise InputError(
                f"mismatched bundles: entry point {name!r}, {key[0]} {key[1]!r}: {one} in {found.path}, {other} in "
                f"{reference.path}: export both with the same sizes"
            )


def _tensors(entry_point: Signature) -> dict[tuple[str, str], Any]:
    found = {("argument", each.name): each.spec for each in entry_point.arguments}
    found |= {("result", each.name): each.spec for each in entry_point.results}
    return {
        key: f"{'float' if spec.dtype.is_floating else spec.dtype.name}{list(spec.shape)}"
        for key, spec in found.items()
    }
