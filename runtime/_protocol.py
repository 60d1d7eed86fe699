"""Sessions as a bundle's users call them; each engine has classes of this form, and imports none of these."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from lang_core import TensorSpec
from runtime._counters import Counters


class Tensor(Protocol):
    """Handle of a tensor on the session's devices; dead once it is donated or held, or the session is closed."""

    @property
    def spec(self) -> TensorSpec:
        """Shape and dtype, also of a dead one."""
        ...

    @property
    def alive(self) -> bool:
        """True if it can be used."""
        ...

    def numpy(self) -> np.ndarray:
        """Copies the contents to an array of its shape, which is the caller's. Raises DeviceError if it is dead."""
        ...


class Results(Protocol):
    """Results of a call on held tensors, read when they are asked for."""

    def __getitem__(self, index: int, /) -> Tensor:
        """Returns a result by its index among all of the function. Raises DeviceError if it is held."""
        ...

    def number(self, index: int) -> int:
        """Reads a result that is a single i32."""
        ...


class Held(Protocol):
    """Tensors, such as caches, that calls take and leave in their place."""

    def numpy(self, index: int) -> np.ndarray:
        """Copies the contents of one to the host, in its shape."""
        ...

    def copies(self, indices: Sequence[int]) -> Sequence[Tensor]:
        """Copies some on the device; each copy has the shape and dtype of its tensor."""
        ...

    def read(self, index: int, part: tuple[slice | int, ...]) -> np.ndarray:
        """Copies a part of one to the host: an array of the part's shape, without axes that an index chose."""
        ...

    def write(self, index: int, part: tuple[slice | int, ...], values: np.ndarray) -> None:
        """Replaces a part of one by values of the part's shape and the tensor's dtype."""
        ...

    def replace(self, tensors: Mapping[int, Any]) -> None:
        """Replaces some by handles of the session, which are dead afterwards."""
        ...


class Function(Protocol):
    """Entry point that takes arrays, numbers and handles of its session."""

    def __call__(self, *values: Any) -> Sequence[Tensor]:
        """Runs it, and waits for its results. Raises DeviceError or InputError for values that do not fit."""
        ...


class Updating(Protocol):
    """Entry point that runs on held tensors of its session in the place of its donated arguments."""

    def __call__(self, held: Any, *values: Any) -> Results:
        """Runs it, and waits for its results; the held tensors then have their replacements."""
        ...


class Session(Protocol):
    """Loaded bundle on a device or several; a context manager that closes it."""

    @property
    def counters(self) -> Counters:
        """Calls and bytes copied so far."""
        ...

    @property
    def device(self) -> str:
        """Name of the device, or of the kind of devices."""
        ...

    @property
    def target(self) -> str:
        """Name of the target that its modules are compiled for; measurements of a bundle are stored under it."""
        ...

    @property
    def module(self) -> Path:
        """File that was loaded."""
        ...

    @property
    def entry_points(self) -> Sequence[str]:
        """Names of the functions that can be called."""
        ...

    def function(self, name: str) -> Function:
        """Returns an entry point to call. Raises DeviceError if there is none of that name."""
        ...

    def updating(self, name: str, first: int | None = None) -> Updating:
        """Returns an entry point to call on held tensors; ``first`` is the first result that replaces one of them."""
        ...

    def hold(self, tensors: Sequence[Any]) -> Held:
        """Returns tensors that calls take and leave in their place; the handles are dead afterwards."""
        ...

    def upload(self, array: np.ndarray) -> Tensor:
        """Copies an array of any shape to the device."""
        ...

    def zeros(self, spec: TensorSpec) -> Tensor:
        """Returns a tensor of zeros on the device, of this shape and dtype."""
        ...

    def close(self) -> None:
        """Frees everything; closing twice is allowed."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: object) -> None: ...
