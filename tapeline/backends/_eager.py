"""Bundles in the eager context: NumPy runs the model that a bundle was exported from, and nothing is compiled."""

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

import runtime
from compile_hlo.directions import LoweredArgument
from lang_core import DeviceError, EagerExecutionContext, InputError, TensorSpec, as_dtype, near_names
from runtime import ArgumentChecks, Counters, DeviceHandle, Value, admitted
from tapeline.backends._described_model import model_of
from tapeline.backends._registry import Place
from tapeline.bundle import ARTIFACT, Bundle


def open_bundle(bundle: Bundle, place: Place) -> "EagerSession":
    """Opens a bundle's model in the eager context; see ``open_session``."""
    return EagerSession(bundle, place.name, checkpoint=place.checkpoint)


class EagerSession:
    """Session that runs the entry points of a bundle's model in the eager context: a ``runtime.Session``.

    Arrays are not changed once they are made, so that a copy is another name of the same array.

    Attributes:
        device: name of the device.
        target: name by which the engine's results are known.
        module: file that describes the model's entry points.
        entry_points: names of the functions that can be called.
        counters: calls and bytes copied so far.
        closed: True once ``close`` was called.
    """

    target: str = "eager"

    def __init__(self, bundle: Bundle, device: str, *, checkpoint: Path | None = None) -> None:
        """Opens a bundle; its weights are mapped, and read as they are used.

        Args:
            bundle: the bundle.
            device: name of the device.
            checkpoint: directory of the weights of a bundle that was exported without.

        Raises:
            InputError: the description lacks a field, or describes another model than the bundle's; or weights are
                missing.
        """
        _, points = model_of(bundle)
        self._signatures: Final = {signature.name: signature for signature in bundle.config.entry_points}
        self._points: Final = {point.name: point for point in points}
        missing = [name for name in self._signatures if name not in self._points]
        if missing:
            raise InputError(
                f"engine=eager: {bundle.path} has the entry point {missing[0]!r}, and its model has "
                f"{', '.join(self._points)}: take another engine, or export the bundle again"
            )
        weights = bundle.weights(checkpoint)
        self._ctx: Final = EagerExecutionContext() if weights is None else EagerExecutionContext(weights)
        self._checks: Final = {
            name: ArgumentChecks(self, signature, ArrayHandle) for name, signature in self._signatures.items()
        }
        self.device: Final = device
        self.module: Final = bundle.path / ARTIFACT
        self.entry_points: Final = tuple(self._signatures)
        self.counters: Final = Counters()
        self.closed = False
        # What handles know their session by: see ``runtime.DeviceHandle``.
        self.origin: Final = str(bundle.path)
        self.lock: Final = threading.RLock()
        self.keys: Final = count()
        self.held: Final[Mapping[int, Any]] = {}

    def function(self, name: str) -> runtime.Function:
        """Returns an entry point that takes arrays, numbers and handles.

        Raises:
            DeviceError: there is none of the name, or the session is closed.
        """
        self._check_open(f"look up {name!r}")
        if name not in self._signatures:
            raise DeviceError(
                f"{self.origin!r} has no entry point {name!r}; available: {', '.join(self.entry_points)}"
                f"{near_names(name, self.entry_points)}"
            )
        return partial(self._call, name)

    def updating(self, name: str, first: int | None = None) -> runtime.Updating:
        """Returns an entry point that runs on held tensors in the place of its donated arguments.

        Args:
            name: name of the entry point.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None if each has a result by ``alias_result``.

        Raises:
            DeviceError: see ``function``.
        """
        self.function(name)
        return partial(self._update, name, first)

    def hold(self, tensors: Sequence[Any]) -> "HeldArrays":
        """Returns tensors that calls take and leave in their place; the handles are dead afterwards."""
        return HeldArrays(self, [tensor.take("hold") for tensor in tensors])

    def upload(self, array: np.ndarray) -> "ArrayHandle":
        """Returns a tensor of the contents of an array of any shape.

        Raises:
            DeviceError: the session is closed.
        """
        self._check_open("upload an array")
        self.counters.bytes_in += array.nbytes
        return ArrayHandle(self, array.copy())

    def zeros(self, spec: TensorSpec) -> "ArrayHandle":
        """Returns a tensor of zeros, of this shape and dtype.

        Raises:
            DeviceError: the session is closed.
        """
        self._check_open("make zeros")
        return ArrayHandle(self, np.zeros(spec.shape, spec.dtype.numpy))

    def close(self) -> None:
        """Ends it; closing twice is allowed."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, name: str, values: Sequence[Value]) -> list[np.ndarray]:
        """Runs an entry point on right values of all its arguments; results have the shapes of their specs."""
        signature = self._signatures[name]
        arrays = [self._array(*pair) for pair in zip(signature.arguments, values, strict=True)]
        began = time.perf_counter()
        results = self._points[name](self._ctx, *map(self._ctx.constant, arrays))
        self.counters.calls += 1
        self.counters.module_seconds += time.perf_counter() - began
        return [results[result.name].numpy() for result in signature.results]

    def _call(self, name: str, *values: Value) -> "Sequence[ArrayHandle]":
        signature = self._signatures[name]
        given = admitted(signature.arguments, values)
        with self.lock:
            self._check_open(f"call {name!r}")
            self._checks[name](given)
            results = self.run(name, given)
            for argument, value in zip(signature.arguments, given, strict=True):
                if argument.donated and isinstance(value, ArrayHandle):
                    value.donate(repr(name))
        return [ArrayHandle(self, array) for array in results]

    def _update(self, name: str, first: int | None, held: "HeldArrays", *values: Value) -> "ArrayResults":
        signature, checks = self._signatures[name], self._checks[name]
        others = [argument for argument in signature.arguments if not argument.donated]
        given = admitted(others, values)
        with self.lock:
            self._check_open(f"call {name!r}")
            if len(given) != len(others):
                raise DeviceError(f"{name!r} takes {len(others)} arguments beside held tensors, found {len(given)}")
            for argument, value in zip(others, given, strict=True):
                checks.check(argument, value)
            kept, rest = iter(held.arrays), iter(given)
            results = self.run(name, [next(kept) if one.donated else next(rest) for one in signature.arguments])
            names = [result.name for result in signature.results]
            donated = [argument for argument in signature.arguments if argument.donated]
            for place, argument in enumerate(donated):
                index = names.index(argument.alias_result or "") if first is None else first + place
                held.arrays[place] = results[index]
        return ArrayResults(self, results)

    def _array(self, argument: LoweredArgument, value: Value) -> np.ndarray:
        if isinstance(value, ArrayHandle):
            return value.array
        return np.asarray(value, argument.spec.dtype.numpy)

    def _check_open(self, action: str) -> None:
        if self.closed:
            raise DeviceError(f"cannot {action}: the session on {self.origin!r} is closed; open a new one")


class ArrayHandle(DeviceHandle[EagerSession]):
    """Handle of an array."""

    __slots__ = ("array",)

    def __init__(self, session: EagerSession, array: np.ndarray) -> None:
        """Names an array, which nobody changes."""
        super().__init__(session, next(session.keys), TensorSpec(array.shape, as_dtype(array.dtype)))
        self.array = array

    def take(self, action: str) -> np.ndarray:
        """Returns the array, and dies.

        Raises:
            DeviceError: it is dead.
        """
        self.check(action)
        array = self.array
        self.donate("held tensors")
        return array

    def donate(self, to: str) -> None:
        """Marks the tensor as dead."""
        self._donated_to = to

    def _contents(self) -> np.ndarray:
        return self.array.copy()


class HeldArrays:
    """Arrays that calls take and leave in their place: a ``runtime.Held``.

    Attributes:
        arrays: the arrays.
    """

    def __init__(self, session: EagerSession, arrays: Sequence[np.ndarray]) -> None:
        """Takes arrays, which nobody changes."""
        self._session: Final = session
        self.arrays: Final = list(arrays)

    def numpy(self, index: int) -> np.ndarray:
        """Copies the contents of one, in its shape."""
        return self.arrays[index].copy()

    def copies(self, indices: Sequence[int]) -> Sequence[ArrayHandle]:
        """Returns handles of some, each of the shape and dtype of its tensor."""
        return [ArrayHandle(self._session, self.arrays[index]) for index in indices]

    def read(self, index: int, part: tuple[slice | int, ...]) -> np.ndarray:
        """Copies a part of one: an array of the part's shape, without axes that an index chose."""
        return self.arrays[index][part].copy()

    def write(self, index: int, part: tuple[slice | int, ...], values: np.ndarray) -> None:
        """Replaces a part of one by values of the part's shape and the tensor's dtype."""
        array = self.arrays[index].copy()
        array[part] = values
        self.arrays[index] = array

    def replace(self, tensors: Mapping[int, ArrayHandle]) -> None:
        """Replaces some by handles of the session, which are dead afterwards."""
        for index, tensor in tensors.items():
            self.arrays[index] = tensor.take("hold")


class ArrayResults:
    """Results of a call on held tensors: a ``runtime.Results``."""

    def __init__(self, session: EagerSession, arrays: Sequence[np.ndarray]) -> None:
        """Takes the results of all indices."""
        self._session: Final = session
        self._arrays: Final = arrays

    def __getitem__(self, index: int) -> ArrayHandle:
        """Returns a result by its index among all of the function."""
        return ArrayHandle(self._session, self._arrays[index])

    def number(self, index: int) -> int:
        """Reads a result that is a single i32."""
        return int(self._arrays[index].item())
