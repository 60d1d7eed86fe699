"""Handles of tensors on a device."""

import numpy as np

from run_iree.devices import address, read_back
from run_iree.sessions._program import Program
from runtime import DeviceHandle

_NO_KEY = -1


class DeviceTensor(DeviceHandle[Program]):
    """Handle of a tensor; the program keeps its buffer under the handle's key."""

    __slots__ = ()

    def _contents(self) -> np.ndarray:
        assert self.program.device is not None
        return read_back(self.program.device.hal, self.program.views[self.key], self._spec)

    def address(self) -> int | None:
        """Returns the address of the contents in host memory; None on a device with memory of its own.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("locate")
            return address(self.program.views[self.key])

    def donate(self, to: str) -> None:
        """Marks the tensor as dead, whatever its shape; its memory is gone."""
        self._donated_to = to
        self.program.views.pop(self.key, None)

    def pass_on(self, to: str) -> int:
        """Marks the tensor as dead; returns the key of its buffer, which now belongs to a result."""
        key, self.key, self._donated_to = self.key, _NO_KEY, to
        return key

    def __del__(self) -> None:
        self.program.views.pop(self.key, None)
