"""Results of calls on held tensors, read when they are asked for."""

from collections.abc import Sequence
from typing import Any, Final

from iree.runtime import HalBufferView, VmVariantList

from lang_core import DeviceError, TensorSpec, i32
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program


class ResultTable:
    """Results of a function, for all its calls.

    Attributes:
        specs: shape and dtype of each; None of one that is held.
        numbers: indices of those that are a single i32.
    """

    __slots__ = ("numbers", "specs")

    def __init__(self, specs: Sequence[TensorSpec | None]) -> None:
        self.specs: Final = specs
        self.numbers: Final = frozenset(
            i for i, spec in enumerate(specs) if spec is not None and spec.dtype is i32 and spec.size == 1
        )


class Results:
    """Results of one call, without those that are held; each becomes a ``DeviceTensor`` when it is first asked for."""

    __slots__ = ("__weakref__", "_outputs", "_program", "_table", "_tensors")

    def __init__(
        self,
        program: Program,
        table: ResultTable,
        outputs: VmVariantList | None,
        tensors: dict[int, DeviceTensor] | None = None,
    ) -> None:
        """Names the results; the lock is held.

        Args:
            program: owner of the buffers.
            table: results of the function.
            outputs: results as IREE gives them, which the program takes away when it closes; None if ``tensors``
                has all.
            tensors: handles by index.
        """
        self._program = program
        self._table = table
        self._outputs = outputs
        self._tensors = tensors
        if outputs is not None:
            program.remember(self)

    def __getitem__(self, index: int) -> DeviceTensor:
        """Returns a result by its index among all of the function.

        Raises:
            DeviceError: the result is held, or the session is closed.
        """
        if self._tensors is None:
            self._tensors = {}
        if index not in self._tensors:
            with self._program.lock:
                spec, view, key = self._spec(index), self._view(index), next(self._program.keys)
                self._program.views[key] = view
            self._tensors[index] = DeviceTensor(self._program, key, spec)
        return self._tensors[index]

    def number(self, index: int) -> int:
        """Reads a result that is a single i32.

        Raises:
            DeviceError: the result is held or something else, or the session is closed.
        """
        if index not in self._table.numbers:
            raise DeviceError(f"result {index} is {self._spec(index)}, and no single i32: ask for its .numpy()")
        if self._tensors is not None and index in self._tensors:
            return int(self._tensors[index].numpy().item())
        with self._program.lock:
            # Not through NumPy, which takes ten times as long when its code is fetched from memory.
            memory: Any = self._view(index).map()  # a buffer, which its stub does not say
            number = int.from_bytes(memory, "little", signed=True)
        self._program.counters.bytes_out += 4
        return number

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
