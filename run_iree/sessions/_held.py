"""Held tensors, such as caches, which calls take and leave in their place.

With handles every call ends one and makes one per tensor. Between two steps the weights of a model have passed through
the processor's caches, so that every object touched is fetched from memory.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from run_iree.devices import address, duplicate, peek, upload
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program
from runtime import HELD, Holding, Part


class HeldTensors(Holding[Program, DeviceTensor]):
    """Held tensors, made by ``Session.hold`` for ``Updating``; the program keeps references to their buffers."""

    __slots__ = ("_keys",)

    def __init__(self, program: Program, tensors: Sequence[DeviceTensor]) -> None:
        """Takes the place of handles, which are dead afterwards; they were checked, and the lock is held."""
        super().__init__(program, tensors)
        self._keys: list[int] = []
        self.take(tensors)

    def take(self, tensors: Sequence[DeviceTensor]) -> None:
        """Holds these, of the same specs, in place of those that ``lend`` gave away."""
        self._keys = [tensor.pass_on(HELD) for tensor in tensors]
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

    def _read(self, index: int, part: Part) -> np.ndarray:
        return self._memory(index)[part].copy()

    def _write(self, index: int, part: Part, values: np.ndarray) -> None:
        memory, reached = self._memory(index), self._reached(index)
        memory[part] = values
        if not reached:
            self._upload(index, memory)

    def _replace(self, tensors: Mapping[int, DeviceTensor]) -> None:
        old = self.lend()
        self.take([tensors.get(index, tensor) for index, tensor in enumerate(old)])

    def _memory(self, index: int) -> np.ndarray:
        """Returns the memory of one if the host reaches it, else a copy."""
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
