"""The base class of kernels, and their variants by platform and method."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args, get_origin

import numpy as np

from autotune.kernel._errors import KernelError, MissingMethodError
from autotune.kernel._invocation import Invocation
from autotune.kernel._source import source_hash
from autotune.kernel._specs import ArraySpec, Bucket, map_arrays
from lang_core import DTYPES

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")

_BY_NAME: Final = {dtype.numpy.name: dtype for dtype in DTYPES}
# Methods that get the configuration as ``cfg=``.
_WITH_CFG: Final = ("run", "fwd_with_residuals", "vjp")
KERNEL_CLASSES: Final[dict[str, type["Kernel[Any, Any]"]]] = {}
"""Declared classes of kernels by ``module:name``, the names that records of calls use."""


class Kernel(Generic[Cfg, Out]):
    """Implementation of an op in several configurations.

    A method may have variants for a platform or a way of execution: ``run_gpu``, ``run_<method>``,
    ``run_<method>_gpu``; the most specific one is called. The same holds for ``heuristic_cfg``, ``candidate_cfgs``,
    ``fwd_with_residuals`` and ``vjp``.

    ``run`` may have a keyword argument ``ctx``. It is then written in ``ctx.ops``, works on NumPy arrays and in
    recordings alike, and gets a context from the executor if the caller gives none.

    Attributes:
        op_id: name of the op; ``module.Class`` if a subclass sets none.
        version: part of keys; a new version discards stored configurations, as a change of the source does.
        key_builder: function that makes the call part of keys in place of ``Invocation.call_key``.
        bucket: function that rounds shapes in keys, for instance ``powers_of_two``.
        tolerance: allowed difference between configurations, relative to the largest value; by dtype if None.
        cfg_type: class of configurations, to read them from disk; taken from ``Kernel[Cfg, Out]`` in a subclass.

    >>> class Scaled(Kernel[int, np.ndarray]):
    ...     op_id = "scaled"
    ...     def run(self, x, *, cfg):
    ...         return np.concatenate([part * 2 for part in np.array_split(x, cfg)])
    ...     def heuristic_cfg(self, inv):
    ...         return 1
    >>> Scaled().run(np.arange(3), cfg=2).tolist()
    [0, 2, 4]
    """

    op_id: str = ""
    version: str = "0"
    key_builder: Callable[[Invocation[Any, Any]], str] | None = None
    bucket: Bucket | None = None
    tolerance: float | None = None
    cfg_type: ClassVar[type | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KERNEL_CLASSES[f"{cls.__module__}:{cls.__qualname__}"] = cls
        if "cfg_type" not in vars(cls):
            for base in getattr(cls, "__orig_bases__", ()):
                origin, args = get_origin(base), get_args(base)
                if args and isinstance(origin, type) and issubclass(origin, Kernel) and isinstance(args[0], type):
                    cls.cfg_type = args[0]
        for name in ("key_builder", "bucket"):  # a plain function in a class would be bound as a method
            if inspect.isfunction(vars(cls).get(name)):
                setattr(cls, name, staticmethod(vars(cls)[name]))

    def __init__(self, op_id: str | None = None) -> None:
        self.op_id = op_id or self.op_id or f"{type(self).__module__}.{type(self).__name__}"

    @property
    def op(self) -> str:
        """The op part of keys: ``op_id@vVERSION``."""
        return f"{self.op_id}@v{self.version}"

    @property
    def source(self) -> str:
        """Hash of the class's source."""
        return self.class_source()

    @classmethod
    def class_source(cls) -> str:
        """Returns the hash of the class's source."""
        return source_hash(cls, Kernel)

    def prepare(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Checks and converts a caller's arguments, before a configuration is chosen."""
        return args, kwargs

    def run(self, *args: Any, cfg: Cfg, **kwargs: Any) -> Out:
        """Computes the result. ``args`` and ``kwargs`` are those that ``prepare`` returned.

        Raises:
            MissingMethodError: the kernel lacks this method.
        """
        raise MissingMethodError(f"{type(self).__name__} has no run(*args, cfg, **kwargs)")

    def heuristic_cfg(self, inv: Invocation[Cfg, Out]) -> Cfg:
        """Returns a configuration that gives the right result and is reasonably fast, without a measurement.

        Raises:
            MissingMethodError: the kernel lacks this method.
        """
        raise MissingMethodError(f"{type(self).__name__} has no heuristic_cfg(inv)")

    def candidate_cfgs(self, inv: Invocation[Cfg, Out]) -> Iterable[Cfg]:
        """Returns the configurations worth measuring."""
        return [self.heuristic_cfg(inv)]

    def fwd_with_residuals(self, *args: Any, cfg: Cfg, **kwargs: Any) -> tuple[Out, Any]:
        """Computes the result of ``run``, and the residuals that ``vjp`` needs besides.

        Raises:
            MissingMethodError: the kernel lacks this method.
        """
        raise MissingMethodError(f"{type(self).__name__} has no fwd_with_residuals(*args, cfg, **kwargs)")

    def vjp(self, residuals: Any, output: Out, d_output: Out, *args: Any, cfg: Cfg, **kwargs: Any) -> tuple[Any, ...]:
        """Computes the gradients of the arguments.

        Args:
            residuals: residuals of ``fwd_with_residuals``.
            output: result of ``fwd_with_residuals``.
            d_output: gradient of the loss with respect to ``output``, in its shape; a tuple for a tuple.
            *args: positional arguments of the forward pass.
            cfg: configuration of the forward pass.
            **kwargs: keyword arguments of the forward pass.

        Returns:
            One gradient per entry of ``args``; None for an argument without one.

        Raises:
            MissingMethodError: the kernel lacks this method.
        """
        raise MissingMethodError(f"{type(self).__name__} has no vjp(residuals, output, d_output, *args, cfg)")

    def example_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns arrays to time a recorded call with: normally distributed for floating specs, else zeros."""
        random = np.random.default_rng(0)

        def filled(spec: ArraySpec) -> Any:
            known = _BY_NAME.get(spec.dtype)
            dtype = known.numpy if known else np.dtype(spec.dtype)
            floating = known.is_floating if known else dtype.kind == "f"
            return random.standard_normal(spec.shape).astype(dtype) if floating else np.zeros(spec.shape, dtype)

        return map_arrays(filled, args), map_arrays(filled, kwargs)


def variant(kernel: Kernel[Any, Any], name: str, platform: str, method: str | None = None) -> Callable[..., Any]:
    """Returns the first that exists of ``name_method_platform``, ``name_method``, ``name_platform``, ``name``.

    Args:
        kernel: kernel with the method.
        name: name of the method, such as ``run``.
        platform: platform of the devices, such as ``cpu``.
        method: way of execution, if one is asked for.

    Raises:
        KernelError: the method lacks the argument ``cfg``.
    """
    return getattr(kernel, _variant(type(kernel), name, platform, method))


@cache
def _variant(kernel: type, name: str, platform: str, method: str | None) -> str:
    names = [f"{name}_{method}_{platform}", f"{name}_{method}"] if method else []
    names.append(f"{name}_{platform}")
    chosen = next((known for known in names if callable(getattr(kernel, known, None))), name)
    if name in _WITH_CFG:
        _check_takes_cfg(kernel, chosen)
    return chosen


def _check_takes_cfg(kernel: type, name: str) -> None:
    parameters = inspect.signature(getattr(kernel, name)).parameters
    if "cfg" not in parameters and not any(kind.kind is kind.VAR_KEYWORD for kind in parameters.values()):
        raise KernelError(f"{kernel.__name__}.{name} has no argument cfg: write {name}(self, ..., *, cfg)")


def has_gradient(kernel: Kernel[Any, Any], platform: str, method: str | None = None) -> bool:
    """Returns whether the kernel has its own gradient.

    Raises:
        KernelError: it has only one of ``fwd_with_residuals`` and ``vjp``.
    """
    forward, backward = (
        getattr(type(kernel), _variant(type(kernel), name, platform, method)) is not getattr(Kernel, name)
        for name in ("fwd_with_residuals", "vjp")
    )
    if forward != backward:
        has, lacks = ("fwd_with_residuals", "vjp") if forward else ("vjp", "fwd_with_residuals")
        raise KernelError(f"kernel {kernel.op_id!r} has {has} and no {lacks}: a gradient takes both")
    return forward


def takes_context(method: Callable[..., Any]) -> bool:
    """Returns whether a method, bound or plain, has an argument ``ctx``."""
    return _takes_context(getattr(method, "__func__", method))


@cache
def _takes_context(function: Callable[..., Any]) -> bool:
    return "ctx" in inspect.signature(function).parameters


def run_takes_context(kernel: Kernel[Any, Any], platform: str, method: str | None = None) -> bool:
    """Returns whether the kernel's ``run`` is written in ``ctx.ops`` on this platform."""
    return takes_context(variant(kernel, "run", platform, method))
