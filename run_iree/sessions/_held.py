"""Held tensors, such as caches, which calls take and leave in their place.

With handles every call ends one and makes one per tensor. Between two steps the weights of a model have passed through
the processor's caches, so that every object touched is fetched from memory.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lang_core import DeviceError, TensorSpec
from run_iree.sessions._device_tensor import DeviceTensor
from run_iree.sessions._program import Program

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
        """Copies the contents of one to the host.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            tensors = self.lend()
            try:
                return tensors[index].numpy()
            finally:
                self.take(tensors)

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
