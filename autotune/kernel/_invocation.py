"""Invocations: calls of kernels, as the selection of configurations sees them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np

from autotune.kernel._environment import Environment, environment_of
from autotune.kernel._errors import KernelError
from autotune.kernel._specs import Bucket, abstractify, map_arrays, spec_of
from autotune.kernel._values import quick_key, short_hash
from lang_core import checked_choices

Cfg = TypeVar("Cfg")
"""Type of a kernel's configuration."""
Out = TypeVar("Out")
"""Type of a kernel's result."""

# Call keys by quick key; cleared when there are too many.
_KEYS: Final[dict[Any, str]] = {}
_KEYS_LIMIT: Final = 4096


@checked_choices
@dataclass(frozen=True, slots=True)
class Invocation(Generic[Cfg, Out]):
    """Call of a kernel, with prepared arguments.

    Attributes:
        op_id: id of the kernel.
        args: positional arguments, after ``prepare``; keys have specs of arrays, and values of all else.
        kwargs: keyword arguments, in the same form.
        batch_axes: axis along which a batch was added around the kernel, by argument.
        override_cfg: configuration to take, whatever is remembered.
        stamp: whether to label the call.
        method: way of execution, for which a kernel may have variants such as ``run_<method>``.
        mesh: mesh of devices that share the work; its ``repr`` is part of the key.
        environment: environment of the call; that of its arrays if None.
        bucket: function that rounds shapes, so that similar shapes share a configuration.
        candidate_runner: function from a configuration to the function to time; the kernel's own ``run`` if None.
    """

    op_id: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    batch_axes: Mapping[str, int] | None = None
    override_cfg: Cfg | None = None
    stamp: bool = True
    method: str | None = None
    mesh: Any = None
    environment: Environment | None = None
    bucket: Bucket | None = None
    candidate_runner: Callable[[Any], Callable[..., Any]] | None = field(default=None, compare=False)

    @property
    def call_key(self) -> str:
        """16 hexadecimal digits of specs, static values, batch axes, method and mesh; data does not count.

        Raises:
            KernelError: the batch axes are not a dict, or a value cannot be part of a key.
        """
        return self._key(self.bucket)

    def _key(self, bucket: Bucket | None) -> str:
        try:
            extra = None if self.batch_axes is None else quick_key(dict(self._axes()))
            quick = (
                bucket,
                *[(arg.shape, arg.dtype) if type(arg) is np.ndarray else quick_key(arg) for arg in self.args],
                *self.kwargs,
                *[quick_key(arg) for arg in self.kwargs.values()],
                extra,
                self.method,
                None if self.mesh is None else repr(self.mesh),
            )
            key = _KEYS.get(quick)
        except TypeError:
            return self._long_key(bucket)
        if key is None:
            if len(_KEYS) >= _KEYS_LIMIT:
                _KEYS.clear()
            key = _KEYS[quick] = self._long_key(bucket)
        return key

    def _axes(self) -> Mapping[str, int]:
        if not isinstance(self.batch_axes, Mapping | None):
            raise KernelError(f"{self.op_id}: batch_axes={self.batch_axes!r}: expected a dict from argument to axis")
        return self.batch_axes or {}

    def _long_key(self, bucket: Bucket | None) -> str:
        args, kwargs = self._specs(bucket)
        mesh = None if self.mesh is None else repr(self.mesh)
        return short_hash((args, kwargs, dict(self._axes()), self.method, mesh))

    def specs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments with specs in place of arrays, shapes rounded by the bucket, without the context."""
        return self._specs(self.bucket)

    def _specs(self, bucket: Bucket | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        kwargs = {name: value for name, value in self.kwargs.items() if name != "ctx"}
        if bucket is None:
            return abstractify(self.args), abstractify(kwargs)

        def rounded(array: Any) -> Any:
            spec = spec_of(array)
            return spec._replace(shape=_rounded(self.op_id, bucket, spec.shape))

        return map_arrays(rounded, self.args), map_arrays(rounded, kwargs)

    def make_key(
        self, key_builder: Callable[["Invocation[Cfg, Out]"], str] | None = None, bucket: Bucket | None = None
    ) -> str:
        """Returns the call key, or the key that the kernel's own ``key_builder`` makes.

        Args:
            key_builder: the kernel's function from an invocation to a key.
            bucket: the kernel's bucket; ignored if the invocation has one of its own.

        Raises:
            KernelError: an argument cannot be part of a key, or a function of the kernel's returned an invalid key or
                shape.
        """
        if key_builder is None:
            return self._key(self.bucket or bucket)
        key = key_builder(self)
        if not isinstance(key, str) or not key:
            raise KernelError(f"{self.op_id}: key_builder returned {key!r}: return a text that is not empty")
        return key

    def where(self) -> Environment:
        """Returns the environment of the call."""
        if self.environment is not None:
            return self.environment
        return environment_of(self.args if not self.kwargs else (*self.args, *self.kwargs.values()))


def _rounded(op_id: str, bucket: Bucket, shape: tuple[int, ...]) -> tuple[int, ...]:
    rounded = bucket(shape)
    if not isinstance(rounded, tuple | list) or not all(isinstance(dim, int | np.integer) for dim in rounded):
        raise KernelError(f"{op_id}: bucket returned {rounded!r} for the shape {shape}: return a tuple of integers")
    return tuple(map(int, rounded))
