"""One call of a kernel, as selection sees it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import numpy as np

from autotune.kernel._environment import Environment, environment_of
from autotune.kernel._specs import Bucket, abstractify, map_arrays, quick_key, short_hash, spec_of

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")

# The call keys of calls that were seen already; forgotten all at once when there are many.
_KEYS: Final[dict[Any, str]] = {}
_KEYS_LIMIT: Final = 4096


@dataclass(frozen=True, slots=True)
class Invocation(Generic[Cfg, Out]):
    """A call: the kernel's id and prepared arguments.

    Attributes:
        op_id: of the kernel.
        args: positional arguments, after ``prepare``; only their specs count, and values of what is no array.
        kwargs: keyword arguments, the same.
        batch_axes: by argument, along which axis a batch was added around the kernel.
        override_cfg: the configuration to take, whatever is remembered.
        stamp: whether the call is labelled.
        method: the way of execution, for which a kernel may have variants such as ``run_<method>``.
        mesh: how devices share the work; its ``repr`` counts.
        environment: where it will run; where its arrays lie, if None.
        bucket: rounds shapes, so that near ones share a configuration.
        candidate_runner: makes what is timed for a configuration; the kernel's own ``run`` if None.
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
        """16 hexadecimal digits: specs, static values, batch axes, method and mesh; no data."""
        return self._key(self.bucket)

    def _key(self, bucket: Bucket | None) -> str:
        try:
            extra = None if self.batch_axes is None else tuple(self.batch_axes.items())
            quick = (
                bucket,
                *[(each.shape, each.dtype) if type(each) is np.ndarray else quick_key(each) for each in self.args],
                *self.kwargs,
                *[quick_key(each) for each in self.kwargs.values()],
                extra,
                self.method,
                None if self.mesh is None else repr(self.mesh),
            )
            found = _KEYS.get(quick)
        except TypeError:
            return self._long_key(bucket)
        if found is None:
            if len(_KEYS) >= _KEYS_LIMIT:
                _KEYS.clear()
            found = _KEYS[quick] = self._long_key(bucket)
        return found

    def _long_key(self, bucket: Bucket | None) -> str:
        args, kwargs = self._specs(bucket)
        mesh = None if self.mesh is None else repr(self.mesh)
        return short_hash((args, kwargs, dict(self.batch_axes or {}), self.method, mesh))

    def specs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with specs in place of arrays, in buckets if there are any; contexts are left out."""
        return self._specs(self.bucket)

    def _specs(self, bucket: Bucket | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        kwargs = {name: value for name, value in self.kwargs.items() if name != "ctx"}
        if bucket is None:
            return abstractify(self.args), abstractify(kwargs)

        def rounded(array: Any) -> Any:
            spec = spec_of(array)
            return spec._replace(shape=tuple(bucket(spec.shape)))

        return map_arrays(rounded, self.args), map_arrays(rounded, kwargs)

    def make_key(
        self, key_builder: Callable[["Invocation[Cfg, Out]"], str] | None = None, bucket: Bucket | None = None
    ) -> str:
        """The call key, or what a kernel's own ``key_builder`` makes of the call.

        Args:
            key_builder: the kernel's.
            bucket: the kernel's; the invocation's own, where it has one, counts in its place.
        """
        return self._key(self.bucket or bucket) if key_builder is None else key_builder(self)

    def where(self) -> Environment:
        """Where it runs."""
        if self.environment is not None:
            return self.environment
        return environment_of(self.args if not self.kwargs else (*self.args, *self.kwargs.values()))
