"""Handles of tensors on JAX's devices."""

import jax
import numpy as np

from lang_core import DeviceError, DType, TensorSpec
from run_jax.sessions._memory import Sharding, addresses, fetch, settled
from run_jax.sessions._program import Program


class DeviceTensor:
    """Handle of a tensor in the memory of one device or several, of one session.

    It dies with its session, and when it is donated to a call: any use then raises DeviceError.

    Attributes:
        program: owner of its array, for the session.
        key: name of the array there.
    """

    __slots__ = ("__weakref__", "_donated_to", "_spec", "key", "program")

    def __init__(self, program: Program, key: int, spec: TensorSpec) -> None:
        """Names an array; only sessions make handles."""
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
        """Copies the contents to an array of the tensor's whole shape; all processes have to ask for what is cut.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("read")
            array = fetch(self.array())
        self.program.counters.bytes_out += array.nbytes
        return array

    def addresses(self) -> tuple[int, ...] | None:
        """Returns the address of each device's part in this process; None on devices with memory of their own.

        Raises:
            DeviceError: the session is closed, or the tensor was donated to a call.
        """
        with self.program.lock:
            self.check("locate")
            return addresses(self.array())

    def array(self, sharding: Sharding | None = None) -> jax.Array:
        """Returns the array of the tensor's shape, in a sharding where one is given; it is alive, and the lock held."""
        array = self.program.arrays[self.key] = settled(self.program.arrays[self.key], sharding)
        return array

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
        """Marks the tensor as dead; its array is gone."""
        self._donated_to = to
        self.program.arrays.pop(self.key, None)

    def usable_as(self, spec: TensorSpec, program: Program) -> bool:
        """Returns whether it is alive, of the program and of the spec; the lock is held and the program open."""
        return self._donated_to is None and self.program is program and self._spec == spec

    def __del__(self) -> None:
        self.program.arrays.pop(self.key, None)

    def __repr__(self) -> str:
        return f"DeviceTensor({self._spec}{'' if self.alive else ', dead'})"
