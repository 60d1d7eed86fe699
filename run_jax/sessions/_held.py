"""Held tensors, such as caches, which calls take and leave in their place."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._memory import Zeros, addresses, duplicate, read, settled, write
from run_jax.sessions._program import Program
from runtime import HELD, Holding, Part


class HeldTensors(Holding[Program, DeviceTensor]):
    """Held tensors, made by ``Session.hold`` for ``Updating``; the program keeps their arrays."""

    __slots__ = ()

    def __init__(self, program: Program, tensors: Sequence[DeviceTensor]) -> None:
        """Takes the place of handles, which are dead afterwards; they were checked, and the lock is held."""
        super().__init__(program, tensors)
        program.held[self.key] = [_taken(tensor) for tensor in tensors]

    def arrays(self, action: str) -> list[jax.Array | Zeros]:
        """Returns the arrays, of the held specs' shapes, to change them in place of this list; the lock is held.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        self.check(action)
        return self.program.held[self.key]

    def drop(self) -> None:
        """Lets go of all: a call that had them failed."""
        self.program.held.pop(self.key, None)

    def numpy(self, index: int) -> np.ndarray:
        """Copies the contents of one to the host, in its shape.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        return self.read(index, ())

    def copies(self, indices: Sequence[int]) -> list[DeviceTensor]:
        """Copies some on their devices.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            arrays, program = self.arrays("copy"), self.program
            return [DeviceTensor(program, program.add(duplicate(settled(arrays[i]))), self.specs[i]) for i in indices]

    def _read(self, index: int, part: Part) -> np.ndarray:
        return read(self._settled("read", index), part)

    def _write(self, index: int, part: Part, values: np.ndarray) -> None:
        self.program.held[self.key][index] = write(self._settled("write", index), part, values)

    def _replace(self, tensors: Mapping[int, DeviceTensor]) -> None:
        for index, tensor in tensors.items():
            self.program.held[self.key][index] = _taken(tensor)

    def addresses(self, index: int) -> tuple[int, ...] | None:
        """Returns the address of each device's part of one; None on devices with memory of their own.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            return addresses(self._settled("locate", index))

    def _settled(self, action: str, index: int) -> jax.Array:
        arrays = self.arrays(action)
        array = arrays[index] = settled(arrays[index])
        return array


def _taken(tensor: DeviceTensor) -> jax.Array | Zeros:
    array = tensor.program.arrays[tensor.key]
    tensor.donate(HELD)
    return array
