"""Tensors that are held, as sessions of every engine hand them out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np

from lang_core import DeviceError, TensorSpec, plain_bools
from runtime._handle import DeviceHandle, P

H = TypeVar("H", bound=DeviceHandle[Any])

Part = tuple[slice | int, ...]
"""A slice or an index per axis of a tensor, of the first ones."""

HELD: Final = "tensors that are held"
"""Use to which a handle is donated that becomes a held tensor."""


class Holding(ABC, Generic[P, H]):
    """Tensors in the place of an entry point's donated arguments; an engine's class has their memory.

    They die with their session, and when a call fails that had begun to write them.

    Attributes:
        program: owner of their memory, for the session.
        specs: shapes and dtypes.
        key: name of their memory there.
    """

    __slots__ = ("__weakref__", "key", "program", "specs")

    def __init__(self, program: P, tensors: Sequence[H]) -> None:
        """Names memory; the handles were checked, and the lock is held."""
        self.program: Final = program
        self.specs: Final[tuple[TensorSpec, ...]] = tuple(tensor.spec for tensor in tensors)
        self.key: Final = next(program.keys)

    @abstractmethod
    def drop(self) -> None:
        """Lets go of all: a call that had them failed."""

    def read(self, index: int, part: Part) -> np.ndarray:
        """Copies a part of one to the host, in the part's shape; all of it passes if the host cannot reach it.

        Args:
            index: number of the held tensor.
            part: a slice or an index per axis, of the first ones.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        with self.program.lock:
            self.check("read")
            array = self._read(index, part)
        self.program.counters.bytes_out += array.nbytes
        return array

    def write(self, index: int, part: Part, values: np.ndarray) -> None:
        """Replaces a part of one; all of it passes if the host cannot reach the device's memory.

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
            self._check_written(index, part, values)
            self._write(index, part, plain_bools(values))
        self.program.counters.bytes_in += values.nbytes

    def replace(self, tensors: Mapping[int, H]) -> None:
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
            self._replace(tensors)

    def check(self, action: str) -> None:
        """Refuses an action if nothing is held.

        Raises:
            DeviceError: the session is closed, or a call that had them failed.
        """
        if self.program.closed:
            raise DeviceError(f"cannot {action} held tensors: the session on {self.program.origin!r} is closed")
        if self.key not in self.program.held:
            raise DeviceError(
                f"cannot {action} held tensors of {self.program.origin!r}: a call that had them failed: hold others"
            )

    @abstractmethod
    def _read(self, index: int, part: Part) -> np.ndarray:
        """Copies a part of one to the host; something is held, and the lock too."""

    @abstractmethod
    def _write(self, index: int, part: Part, values: np.ndarray) -> None:
        """Replaces a part of one by values that fit."""

    @abstractmethod
    def _replace(self, tensors: Mapping[int, H]) -> None:
        """Replaces the held tensors by matching handles."""

    def _check_written(self, index: int, part: Part, values: np.ndarray) -> None:
        spec = self.specs[index]
        wanted = np.broadcast_to(np.empty((), spec.dtype.numpy), spec.shape)[part]
        if wanted.shape != values.shape or wanted.dtype != values.dtype:
            raise DeviceError(
                f"cannot write {values.dtype}{list(values.shape)} into a part {wanted.dtype}{list(wanted.shape)} "
                f"of held tensor {index}: give values of that shape and dtype"
            )

    def __del__(self) -> None:
        self.drop()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.specs)}{'' if self.key in self.program.held else ', dead'})"
