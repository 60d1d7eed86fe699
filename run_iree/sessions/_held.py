"""Tensors that calls take and leave in their place, such as caches; and what such calls return.

As handles they would be one that dies and one that is made anew per tensor and call. Between two steps the weights of a
model have gone through the processor's caches, so that every object touched is fetched from memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from iree.runtime import HalBufferView, VmVariantList

from lang_core import DeviceError, TensorSpec, i32
from run_iree.sessions._counters import Counters
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program

_TO: Final = "tensors that are held"


class HeldTensors:
    """Made by ``Session.hold``, for ``Function.update``.

    They die with their session, and when a call fails that had begun to write them.

    Attributes:
        program: the owner of their buffers, for the session.
        specs: of each.
        key: names their buffers there.
    """

    __slots__ = ("__weakref__", "_counters", "_keys", "key", "program", "specs")

    def __init__(self, program: Program, counters: Counters, tensors: Sequence[DeviceTensor]) -> None:
        """Takes the place of handles, which are dead afterwards; the lock is held, and they were checked."""
        self.program: Final = program
        self.specs: Final[tuple[TensorSpec, ...]] = tuple(tensor.spec for tensor in tensors)
        self.key: Final = next(program.keys)
        self._counters: Final = counters
        self._keys: list[int] = []
        self.take(tensors)

    def take(self, tensors: Sequence[DeviceTensor]) -> None:
        """Holds these in place of what ``lend`` gave away; of the same specs."""
        self._keys = [tensor.pass_on(_TO) for tensor in tensors]
        self.program.held[self.key] = [self.program.views[key].ref for key in self._keys]

    def lend(self) -> list[DeviceTensor]:
        """Handles of them all; nothing is held until ``take``."""
        self.check("pass")
        del self.program.held[self.key]
        keys, self._keys = self._keys, []
        pairs = zip(keys, self.specs, strict=True)
        return [DeviceTensor(self.program, key, spec, self._counters) for key, spec in pairs]

    def drop(self) -> None:
        """What a call had that failed is gone."""
        self.program.held.pop(self.key, None)
        for key in self._keys:
            self.program.views.pop(key, None)
        self._keys = []

    def numpy(self, index: int) -> np.ndarray:
        """Copies the contents of one to the host.

        Raises:
            DeviceError: the session is closed, or a call failed that had them.
        """
        with self.program.lock:
            tensors = self.lend()
            try:
                return tensors[index].numpy()
            finally:
                self.take(tensors)

    def replace(self, tensors: Mapping[int, DeviceTensor]) -> None:
        """Puts others in the place of some, by their indices; the handles are dead afterwards.

        Raises:
            DeviceError: the session is closed; a call failed that had them; or a tensor is dead, of another session or
                of another shape or dtype.
        """
        with self.program.lock:
            self.check("replace")
            for index, tensor in tensors.items():
                tensor.check("hold")
                if not tensor.usable_as(self.specs[index], self.program):
                    raise DeviceError(
                        f"cannot hold a tensor {tensor.spec} of {tensor.program.origin!r} as number {index}: that is "
                        f"{self.specs[index]}, of {self.program.origin!r}"
                    )
            old = self.lend()
            self.take([tensors.get(index, tensor) for index, tensor in enumerate(old)])

    def check(self, action: str) -> None:
        """Refuses an action where nothing is held.

        Raises:
            DeviceError: the session is closed, or a call failed that had them.
        """
        if self.program.closed:
            raise DeviceError(f"cannot {action} held tensors: the session on {self.program.origin!r} is closed")
        if self.key not in self.program.held:
            raise DeviceError(
                f"cannot {action} held tensors of {self.program.origin!r}: a call that had them failed: hold others"
            )

    def __del__(self) -> None:
        self.drop()

    def __repr__(self) -> str:
        return f"HeldTensors({len(self.specs)}{'' if self.key in self.program.held else ', dead'})"


class ResultTable:
    """What is known of a function's results, for all calls.

    Attributes:
        specs: of each; None of one that is held.
        numbers: which are one i32.
    """

    __slots__ = ("numbers", "specs")

    def __init__(self, specs: Sequence[TensorSpec | None]) -> None:
        self.specs: Final = specs
        self.numbers: Final = frozenset(
            i for i, spec in enumerate(specs) if spec is not None and spec.dtype is i32 and spec.size == 1
        )


class Results:
    """The results of a call that are not held. Each is a ``DeviceTensor``, made when it is first asked for."""

    # Set by ``results_of``. An object of IREE's is among them: the program takes it away when it closes.
    __slots__ = ("__weakref__", "_counters", "_outputs", "_program", "_table", "_tensors")

    _program: Program
    _counters: Counters
    _table: ResultTable
    _outputs: VmVariantList | None
    _tensors: dict[int, DeviceTensor] | None

    def __getitem__(self, index: int) -> DeviceTensor:
        """A result, by its index among all of the function.

        Raises:
            DeviceError: it is one that is held, or the session is closed.
        """
        if self._tensors is None:
            self._tensors = {}
        if index not in self._tensors:
            with self._program.lock:
                spec, view, key = self._spec(index), self._view(index), next(self._program.keys)
                self._program.views[key] = view
            self._tensors[index] = DeviceTensor(self._program, key, spec, self._counters)
        return self._tensors[index]

    def number(self, index: int) -> int:
        """The value of a result of one i32.

        Raises:
            DeviceError: as for a result; or it is something else.
        """
        if index not in self._table.numbers:
            raise DeviceError(f"result {index} is {self._spec(index)}, and no single i32: ask for its .numpy()")
        if self._tensors is not None and index in self._tensors:
            return int(self._tensors[index].numpy().item())
        with self._program.lock:
            # Not by NumPy, which takes ten times as long when its code has to be fetched from memory.
            memory: Any = self._view(index).map()  # a buffer, which its stub does not say
            found = int.from_bytes(memory, "little", signed=True)
        self._counters.bytes_out += 4
        return found

    def release(self) -> None:
        """Lets go of IREE's object: the program closes."""
        self._outputs = None

    def _spec(self, index: int) -> TensorSpec:
        spec = self._table.specs[index]
        if spec is None:
            raise DeviceError(f"result {index} of a call on {self._program.origin!r} is held: ask the held tensors")
        return spec

    def _view(self, index: int) -> HalBufferView:
        if self._outputs is None:
            raise DeviceError(f"cannot read a result: the session on {self._program.origin!r} is closed")
        return self._outputs.get_as_object(index, HalBufferView)


_new: Final = object.__new__


def results_of(
    program: Program,
    counters: Counters,
    table: ResultTable,
    outputs: VmVariantList | None,
    tensors: dict[int, DeviceTensor] | None = None,
) -> Results:
    """Names what a call returned; the lock is held.

    Args:
        program: the owner of the buffers.
        counters: of its session.
        table: of the function.
        outputs: what IREE returned; None where the handles are there.
        tensors: the handles of all that are not held, by index.
    """
    # Not by a constructor: to enter one from C costs a step 18 us, by a function of Python's nothing.
    results = _new(Results)
    results._program, results._counters, results._table = program, counters, table
    results._outputs, results._tensors = outputs, tensors
    if outputs is not None:
        program.remember(results)
    return results
