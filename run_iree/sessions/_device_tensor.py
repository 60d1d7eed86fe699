"""Handles of tensors on a device."""

import numpy as np

from lang_core import DeviceError, DType, TensorSpec
from run_iree.devices import address, read_back
from run_iree.sessions._program import Program

_NO_KEY = -1


class DeviceTensor:
    """Handle of a tensor in a device's memory, of one session.

    It dies with its session, and when it is donated to a call: any use then raises DeviceError.

    Attributes:
        program: owner of its buffer, for the session.
        key: name of the buffer there.
    """

    __slots__ = ("__weakref__", "_donated_to", "_spec", "key", "program")

    def __init__(self, program: Program, key: int, spec: TensorSpec) -> None:
        """Names a buffer; only sessions make handles."""
        self.program = program
        self.key = key
        self._spec = spec
        self._donated_to: str | None = None

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype, also of a dead tensor."""
        return self._spec

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape."""
        return self._spec.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self._spec.dtype

    @property
    def alive(self) -> bool:
        """True if the tensor can be used."""
        return self._donated_to is None and not self.program.closed

    def numpy(self) -> np.ndarray:
        """Copies the contents to an array of the tensor's shape, which belongs to the caller.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("read")
            assert self.program.device is not None
            array = read_back(self.program.device.hal, self.program.views[self.key], self._spec)
        self.program.counters.bytes_out += array.nbytes
        return array

    def address(self) -> int | None:
        """Returns the address of the contents in host memory; None on a device with memory of its own.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("locate")
            return address(self.program.views[self.key])

    def check(self, action: str) -> None:
        """Refuses an action on a dead tensor.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        if self._donated_to is not None:
            raise DeviceError(
                f"cannot {action} this {self._spec}: it was donated to {self._donated_to}; "
                f"use the result that the call returned in its place"
            )
        if self.program.closed:
            raise DeviceError(f"cannot {action} this {self._spec}: its session on {self.program.origin!r} is closed")

    def donate(self, to: str) -> None:
        """Marks the tensor as dead and drops its buffer, which a call took over."""
        self._donated_to = to
        self.program.views.pop(self.key, None)

    def pass_on(self, to: str) -> int:
        """Marks the tensor as dead; returns the key of its buffer, which now belongs to a result."""
        key, self.key, self._donated_to = self.key, _NO_KEY, to
        return key

    def usable_as(self, spec: TensorSpec, program: Program) -> bool:
        """Returns whether it is alive, of the program and of the spec; the lock is held and the program open."""
        return self._donated_to is None and self.program is program and (self._spec is spec or self._spec == spec)

    def __del__(self) -> None:
        self.program.views.pop(self.key, None)

    def __repr__(self) -> str:
        return f"DeviceTensor({self._spec}{'' if self.alive else ', dead'})"
