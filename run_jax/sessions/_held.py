"""Held tensors, such as caches, which calls take and leave in their place."""

from collections.abc import Mapping, Sequence
from typing import Final

import jax
import numpy as np

from lang_core import DeviceError, TensorSpec
from run_jax.sessions._device_tensor import DeviceTensor
from run_jax.sessions._memory import Part, Zeros, addresses, duplicate, read, settled, write
from run_jax.sessions._program import Program

_USE: Final = "tensors that are held"


class HeldTensors:
    """Tensors in the place of an entry point's donated arguments, made by ``Session.hold`` for ``Updating``.

    They die with their session, and when a call fails that had begun to write them.

    Attributes:
        program: owner of their arrays, for the session.
        specs: shapes and dtypes.
        key: name of their arrays there.
    """

    __slots__ = ("__weakref__", "key", "program", "specs")

    def __init__(self, program: Program, tensors: Sequence[DeviceTensor]) -> None:
        """Takes the place of handles, which are dead afterwards; they were checked, and the lock is held."""
        self.program: Final = program
        self.specs: Final[tuple[TensorSpec, ...]] = tuple(tensor.spec for tensor in tensors)
        self.key: Final = next(program.keys)
        program.held[self.key] = [_taken(tensor) for tensor in tensors]

    def arrays(self, action: str) -> list[jax.Array | Zeros]:
        """Returns the arrays, of the held specs' shapes, to change them in place of this list; the lock is held.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        if self.program.closed:
            raise DeviceError(f"cannot {action} held tensors: the session on {self.program.origin!r} is closed")
        if self.key not in self.program.held:
            raise DeviceError(
                f"cannot {action} held tensors of {self.program.origin!r}: a call that had them failed: hold others"
            )
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

    def read(self, index: int, part: Part) -> np.ndarray:
        """Copies a part of one to the host.

        Args:
            index: number of the held tensor.
            part: a slice or an index per axis, of the first ones; the result has the part's shape.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            array = read(self._settled("read", index), part)
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
            arrays, spec = self.arrays("write"), self.specs[index]
            wanted = np.broadcast_to(np.empty((), spec.dtype.numpy), spec.shape)[part]
            if wanted.shape != values.shape or wanted.dtype != values.dtype:
                raise DeviceError(
                    f"cannot write {values.dtype}{list(values.shape)} into a part {wanted.dtype}{list(wanted.shape)} "
                    f"of held tensor {index}: give values of that shape and dtype"
                )
            arrays[index] = write(settled(arrays[index]), part, values)
        self.program.counters.bytes_in += values.nbytes

    def replace(self, tensors: Mapping[int, DeviceTensor]) -> None:
        """Replaces some by handles, which are dead afterwards.

        Args:
            tensors: handles by the index of the held tensor that they replace.

        Raises:
            DeviceError: the session is closed; a call that had them failed; or a tensor is dead, of another session or
                of another shape or dtype.
        """
        with self.program.lock:
            arrays = self.arrays("replace")
            for index, tensor in tensors.items():
                tensor.check("hold")
                if not tensor.usable_as(self.specs[index], self.program):
                    raise DeviceError(
                        f"cannot hold a tensor {tensor.spec} of {tensor.program.origin!r} as number {index}: that is "
                        f"{self.specs[index]}, of {self.program.origin!r}"
                    )
            for index, tensor in tensors.items():
                arrays[index] = _taken(tensor)

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

    def __del__(self) -> None:
        self.drop()

    def __repr__(self) -> str:
        return f"HeldTensors({len(self.specs)}{'' if self.key in self.program.held else ', dead'})"


def _taken(tensor: DeviceTensor) -> jax.Array | Zeros:
    array = tensor.program.arrays[tensor.key]
    tensor.donate(_USE)
    return array
