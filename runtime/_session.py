"""Base of the sessions of every engine: entry points looked up, tensors held, closing."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, Generic, Self, TypeVar

import numpy as np

from compile_hlo.directions import Signature
from lang_core import DeviceError, OpError, Tensor, TensorSpec, as_dtype, near_names
from runtime._counters import Counters
from runtime._handle import P
from runtime._holding import H
from runtime._replacing import UpdatePlan

F = TypeVar("F")
U = TypeVar("U")
T = TypeVar("T")


class BaseSession(ABC, Generic[P, H, F, U, T]):
    """Loaded module with handles ``H``, functions ``F``, updating functions ``U`` and held tensors ``T`` of an engine.

    One call runs at a time; calls from several threads take turns. ``close`` frees everything, as does the end of a
    ``with`` block; any use afterwards raises DeviceError.

    Attributes:
        counters: calls and bytes copied so far.
    """

    def __init__(
        self, program: P, updating: Callable[[P, F, UpdatePlan], U], held: Callable[[P, Sequence[H]], T]
    ) -> None:
        """Takes a program, and factories of held tensors and of functions on them."""
        self._program: Final = program
        self._updating: Final = updating
        self._held: Final = held
        self._functions: Final[dict[str, F]] = {}
        self.counters: Final[Counters] = program.counters

    @property
    @abstractmethod
    def device(self) -> str:
        """Name of the device, or of the kind of devices."""

    @property
    @abstractmethod
    def entry_points(self) -> tuple[str, ...]:
        """Names of the functions that can be called."""

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._program.closed

    def function(self, name: str) -> F:
        """Returns an entry point to call.

        Raises:
            DeviceError: the entry point is not found, or the session is closed.
            InputError: the session's mesh does not divide an argument.
        """
        with self._program.lock:
            self._check_open(f"look up {name!r}")
            if name not in self.entry_points:
                raise DeviceError(
                    f"{self._program.origin!r} has no entry point {name!r}; available: {', '.join(self.entry_points)}"
                    f"{near_names(name, self.entry_points)}"
                )
            if name not in self._functions:
                self._functions[name] = self._function(self._signature(name))
            return self._functions[name]

    def updating(self, name: str, first: int | None = None) -> U:
        """Returns an entry point to call on held tensors.

        Args:
            name: name of the entry point.
            first: index of the result that replaces the first donated argument; the following ones replace the
                following arguments. None if each comes back in the buffer of its argument.

        Raises:
            DeviceError: see ``function``.
            InputError: see ``function``.
        """
        function = self.function(name)
        return self._updating(self._program, function, UpdatePlan(self._program, self._signature(name), first))

    def hold(self, tensors: Sequence[H]) -> T:
        """Returns tensors that calls take and leave in their place; the handles are dead afterwards.

        Raises:
            DeviceError: the session is closed; a tensor is dead, of another session, or passed twice.
        """
        with self._program.lock:
            self._check_open("hold tensors")
            for tensor in tensors:
                tensor.check("hold")
                if tensor.program is not self._program:
                    raise DeviceError(f"cannot hold a tensor of another session ({tensor.spec}); upload its .numpy()")
            if len({tensor.key for tensor in tensors}) < len(tensors):
                raise DeviceError("cannot hold a tensor twice: hold a copy (session.upload(tensor.numpy()))")
            return self._held(self._program, tensors)

    def upload(self, array: np.ndarray | Tensor) -> H:
        """Copies an array of any shape to the device; to each of several, whole.

        Raises:
            DeviceError: the session is closed, or the array's dtype is not supported.
        """
        with self._program.lock:
            self._check_open("upload an array")
            array = array.numpy() if isinstance(array, Tensor) else np.asarray(array)
            try:
                spec = TensorSpec(array.shape, as_dtype(array.dtype))
            except OpError as error:
                raise DeviceError(f"cannot upload an array of shape {array.shape}: {error}") from error
            tensor = self._uploaded(array, spec)
        self.counters.bytes_in += spec.nbytes
        return tensor

    @abstractmethod
    def close(self) -> None:
        """Frees the module, the parameters and every tensor; closing twice is allowed."""

    @abstractmethod
    def _signature(self, name: str) -> Signature:
        """Returns the signature of an entry point."""

    @abstractmethod
    def _function(self, signature: Signature) -> F:
        """Makes an entry point to call."""

    @abstractmethod
    def _uploaded(self, array: np.ndarray, spec: TensorSpec) -> H:
        """Copies an array to the device."""

    def __enter__(self) -> Self:
        self._check_open("enter it")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._program.origin!r}, {self.device!r}{', closed' if self.closed else ''})"

    def _check_open(self, action: str) -> None:
        if self._program.closed:
            raise DeviceError(f"cannot {action}: the session on {self._program.origin!r} is closed; open a new one")
