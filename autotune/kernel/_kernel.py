"""What a kernel is."""

import inspect
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args, get_origin

import numpy as np

from autotune.kernel._errors import KernelError
from autotune.kernel._invocation import Invocation
from autotune.kernel._source import source_hash
from autotune.kernel._specs import ArraySpec, Bucket, map_arrays
from lang_core import DTYPES

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")

_BY_NAME: Final = {dtype.numpy.name: dtype for dtype in DTYPES}
# Classes of kernels by ``module:name``, as they are declared: what a log of invocations names is found here.
KERNEL_CLASSES: Final[dict[str, type["Kernel[Any, Any]"]]] = {}


class Kernel(Generic[Cfg, Out]):
    """An implementation of an op, with configurations.

    A method may have variants for a platform or a way of execution: ``run_gpu``, ``run_<method>``,
    ``run_<method>_gpu``; the most specific one is taken. The same goes for ``heuristic_cfg``, ``candidate_cfgs``,
    ``fwd_with_residuals`` and ``vjp``.

    ``run`` may have a keyword argument ``ctx``: then it is written in ``ctx.ops``, works on NumPy arrays and in
    recordings alike, and the executor gives it a context where the caller does not.

    Attributes:
        op_id: what it computes; ``module.Class`` where a subclass does not say.
        version: raise it to forget what is remembered. A change of the source does that, too.
        key_builder: makes the call part of keys in place of ``Invocation.call_key``.
        bucket: rounds shapes in keys, for instance ``powers_of_two``.
        tolerance: how far results of configurations may be apart, relative to the largest value; by dtype if None.
        cfg_type: of configurations, to read them from disk; found in ``Kernel[Cfg, Out]`` where a subclass names it.

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
        for name in ("key_builder", "bucket"):  # a plain function in a class would be taken for a method
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
        """A hash of the class's source."""
        return self.class_source()

    @classmethod
    def class_source(cls) -> str:
        """The same, without an instance."""
        return source_hash(cls, Kernel)

    def prepare(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Checks and transforms a caller's arguments, before a configuration is chosen."""
        return args, kwargs

    def run(self, *args: Any, cfg: Cfg, **kwargs: Any) -> Out:
        """Computes. ``args`` and ``kwargs`` are what ``prepare`` gave."""
        raise NotImplementedError(f"{type(self).__name__} has no run(*args, cfg, **kwargs)")

    def heuristic_cfg(self, inv: Invocation[Cfg, Out]) -> Cfg:
        """A configuration that is right, and good without a measurement."""
        raise NotImplementedError(f"{type(self).__name__} has no heuristic_cfg(inv)")

    def candidate_cfgs(self, inv: Invocation[Cfg, Out]) -> Iterable[Cfg]:
        """Configurations worth a measurement."""
        return [self.heuristic_cfg(inv)]

    def fwd_with_residuals(self, *args: Any, cfg: Cfg, **kwargs: Any) -> tuple[Out, Any]:
        """What ``run`` gives, and what ``vjp`` needs besides."""
        raise NotImplementedError(f"{type(self).__name__} has no fwd_with_residuals(*args, cfg, **kwargs)")

    def vjp(self, residuals: Any, output: Out, d_output: Out, *args: Any, cfg: Cfg, **kwargs: Any) -> tuple[Any, ...]:
        """The gradient.

        Args:
            residuals: from ``fwd_with_residuals``.
            output: the same.
            d_output: the gradient of the loss with respect to ``output``, in its shape; a tuple for a tuple.
            *args: as in the forward pass.
            cfg: the same.
            **kwargs: the same.

        Returns:
            One gradient per entry of ``args``; None where there is none.
        """
        raise NotImplementedError(f"{type(self).__name__} has no vjp(residuals, output, d_output, *args, cfg)")

    def example_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arrays to time a recorded call with: normal numbers for floating specs, zeros for all others."""
        random = np.random.default_rng(0)

        def filled(spec: ArraySpec) -> Any:
            known = _BY_NAME.get(spec.dtype)
            dtype = known.numpy if known else np.dtype(spec.dtype)
            floating = known.is_floating if known else dtype.kind == "f"
            return random.standard_normal(spec.shape).astype(dtype) if floating else np.zeros(spec.shape, dtype)

        return map_arrays(filled, args), map_arrays(filled, kwargs)


def variant(kernel: Kernel[Any, Any], name: str, platform: str, method: str | None = None) -> Callable[..., Any]:
    """The most specific method: ``name_method_platform``, ``name_method``, ``name_platform``, ``name``."""
    return getattr(kernel, _variant(type(kernel), name, platform, method))


@cache
def _variant(kernel: type, name: str, platform: str, method: str | None) -> str:
    wanted = [f"{name}_{method}_{platform}", f"{name}_{method}"] if method else []
    return next((each for each in (*wanted, f"{name}_{platform}") if callable(getattr(kernel, each, None))), name)


def has_gradient(kernel: Kernel[Any, Any], platform: str, method: str | None = None) -> bool:
    """Whether the kernel brings its own gradient.

    Raises:
        KernelError: it has one half of it.
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
