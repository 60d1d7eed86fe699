"""Handles of tensors in a device's memory, as sessions of every engine hand them out."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from lang_core import DeviceError, DType, NoOperators, TensorSpec
from runtime._counters import Counters


class Owner(Protocol):
    """Loaded module of one session, which owns the memory behind handles."""

    @property
    def origin(self) -> str:
        """File of the module."""
        ...

    @property
    def closed(self) -> bool:
        """True once its session is closed."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Lock held during a call."""
        ...

    @property
    def keys(self) -> Iterator[int]:
        """Names of memory that are new."""
        ...

    @property
    def held(self) -> Mapping[int, Any]:
        """Memory of held tensors, by their keys."""
        ...

    @property
    def counters(self) -> Counters:
        """Calls and bytes copied so far."""
        ...


P = TypeVar("P", bound=Owner)


class DeviceHandle(NoOperators, Generic[P]):  # no ABC: isinstance would take longer, in every call
    """Handle of a tensor in a device's memory, of one session; an engine's class adds how the memory is reached.

    It dies with its session, and when it is donated to a call: any use then raises DeviceError.

    Attributes:
        program: owner of its memory, for the session.
        key: name of the memory there.
    """

    __slots__ = ("__weakref__", "_donated_to", "_spec", "key", "program")

    def __init__(self, program: P, key: int, spec: TensorSpec) -> None:
        """Names memory; only sessions make handles."""
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
        program = self.program
        with program.lock:
            self.check("read")
            array = self._contents()
        program.counters.bytes_out += array.nbytes
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()  # a copy
        return array if dtype is None else array.astype(dtype)

    def _as_operand(self) -> tuple[str, str]:
        return f"a tensor on a device ({self._spec})", "read it, x = tensor.numpy(), and in a model "

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

    def usable_as(self, spec: TensorSpec, program: object) -> bool:
        """Returns whether it is alive, of the program and of the spec; the lock is held and the program open."""
        return self._donated_to is None and self.program is program and (self._spec is spec or self._spec == spec)

    def donate(self, to: str) -> None:
        """Marks the tensor as dead and lets go of its memory, which a call took over."""
        raise NotImplementedError

    def _contents(self) -> np.ndarray:
        """Copies the contents to an array of the tensor's shape; the tensor is alive, and the lock held."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._spec}{'' if self.alive else ', dead'})"
