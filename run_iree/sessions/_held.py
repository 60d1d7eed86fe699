"""Held tensors, such as caches, which calls take and leave in their place.

With handles every call ends one and makes one per tensor. Between two steps the weights of a model have passed through
the processor's caches, so that every object touched is fetched from memory.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lang_core import DeviceError, TensorSpec
from run_iree.devices import address, duplicate, peek, upload
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program

Part = tuple[slice | int, ...]

_USE: Final = "tensors that are held"


class HeldTensors:
    """Tensors in the place of an entry point's donated arguments, made by ``Session.hold`` for ``Updating``.

    They die with their session, and when a call fails that had begun to write them.

    Attributes:
        program: owner of their buffers, for the session.
        specs: shapes and dtypes.
        key: name of their buffers there.
    """

    __slots__ = ("__weakref__", "_keys", "key", "program", "specs")

    def __init__(self, program: Program, tensors: Sequence[DeviceTensor]) -> None:
        """Takes the place of handles, which are dead afterwards; they were checked, and the lock is held."""
        self.program: Final = program
        self.specs: Final[tuple[TensorSpec, ...]] = tuple(tensor.spec for tensor in tensors)
        self.key: Final = next(program.keys)
        self._keys: list[int] = []
        self.take(tensors)

    def take(self, tensors: Sequence[DeviceTensor]) -> None:
        """Holds these, of the same specs, in place of those that ``lend`` gave away."""
        self._keys = [tensor.pass_on(_USE) for tensor in tensors]
        self.program.held[self.key] = [self.program.views[key].ref for key in self._keys]

    def lend(self) -> list[DeviceTensor]:
        """Returns handles of all; nothing is held until ``take``."""
        self.check("pass")
        del self.program.held[self.key]
        keys, self._keys = self._keys, []
        return [DeviceTensor(self.program, key, spec) for key, spec in zip(keys, self.specs, strict=True)]

    def drop(self) -> None:
        """Lets go of all: a call that had them failed."""
        self.program.held.pop(self.key, None)
        for key in self._keys:
            self.program.views.pop(key, None)
        self._keys = []

    def numpy(self, index: int) -> np.ndarray:
        """Copies the contents of one to the host, in its shape.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            tensors = self.lend()
            try:
                return tensors[index].numpy()
            finally:
                self.take(tensors)

    def copies(self, indices: Sequence[int]) -> list[DeviceTensor]:
        """Copies some on the device.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            self.check("copy")
            return [self._copy(index) for index in indices]

    def _copy(self, index: int) -> DeviceTensor:
        program, spec, key = self.program, self.specs[index], next(self.program.keys)
        assert program.device is not None
        program.views[key] = duplicate(program.device.hal, program.views[self._keys[index]], spec)
        return DeviceTensor(program, key, spec)

    def read(self, index: int, part: Part) -> np.ndarray:
        """Copies a part of one to the host; all of it passes where the host cannot reach the device's memory.

        Args:
            index: number of the held tensor.
            part: a slice or an index per axis, of the first ones; the result has the part's shape.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            self.check("read")
            array = self._memory(index)[part].copy()
        self.program.counters.bytes_out += array.nbytes
        return array

    def write(self, index: int, part: Part, values: np.ndarray) -> None:
        """Replaces a part of one; all of it passes where the host cannot reach the device's memory.

        Args:
            index: number of the held tensor.
            part: as for ``read``.
            values: of that part's shape and of the tensor's dtype.

        Raises:
            DeviceError: the session is closed; a call that had them failed; or the values are of another shape or
                dtype.
        """
        with self.program.lock:
            self.check("write")
            memory, reached = self._memory(index), self._reached(index)
            if memory[part].shape != values.shape or memory.dtype != values.dtype:
                raise DeviceError(
                    f"cannot write {values.dtype}{list(values.shape)} into a part {memory.dtype}"
                    f"{list(memory[part].shape)} of held tensor {index}: give values of that shape and dtype"
                )
            memory[part] = values
            if not reached:
                self._upload(index, memory)
        self.program.counters.bytes_in += values.nbytes

    def _memory(self, index: int) -> np.ndarray:
        """Returns the memory of one where the host reaches it, else a copy."""
        assert self.program.device is not None
        return peek(self.program.device.hal, self.program.views[self._keys[index]], self.specs[index])

    def _reached(self, index: int) -> bool:
        return address(self.program.views[self._keys[index]]) is not None

    def _upload(self, index: int, array: np.ndarray) -> None:
        """Replaces one by a copy of an array."""
        assert self.program.device is not None
        view = upload(self.program.device.hal, array, self.specs[index])
        self.program.views[self._keys[index]] = view
        self.program.held[self.key][index] = view.ref

    def replace(self, tensors: Mapping[int, DeviceTensor]) -> None:
        """Replaces some by handles, which are dead afterwards.

        Args:
            tensors: handles by the index of the held tensor that they replace.

        Raises:
            DeviceError: the session is closed; a call that had them failed; or a tensor is dead, of another session or
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
            DeviceError: the session is closed, or a call that had them failed.
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
