"""Handles of tensors on JAX's devices."""

import jax
import numpy as np

from run_jax.sessions._memory import Sharding, addresses, fetch, settled
from run_jax.sessions._program import Program
from runtime import DeviceHandle


class DeviceTensor(DeviceHandle[Program]):
    """Handle of a tensor in the memory of one device or several; the program keeps its array under the handle's key."""

    __slots__ = ()

    def _contents(self) -> np.ndarray:
        return fetch(self.array())  # of what is cut all processes have to ask

    def addresses(self) -> tuple[int, ...] | None:
        """Returns the address of each device's part in this process; None on devices with memory of their own.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("locate")
            return addresses(self.array())

    def array(self, sharding: Sharding | None = None) -> jax.Array:
        """Returns the array of the tensor's shape, in a sharding if one is given; it is alive, and the lock held."""
        array = self.program.arrays[self.key] = settled(self.program.arrays[self.key], sharding)
        return array

    def donate(self, to: str) -> None:
        """Marks the tensor as dead, whatever its shape; its memory is gone."""
        self._donated_to = to
        self.program.arrays.pop(self.key, None)

    def __del__(self) -> None:
        self.program.arrays.pop(self.key, None)
