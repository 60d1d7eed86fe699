"""The protocol of compilers, the kernels that they compile, and compilers by name."""

import importlib
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from autotune.kernel import (
    ArraySpec,
    Environment,
    Invocation,
    Kernel,
    KernelCall,
    KernelError,
    abstractify,
    arrays_of,
    as_jax,
    as_numpy,
    has_gradient,
    is_array,
    is_jax,
    map_arrays,
    prepared,
    run_in_jax,
    run_takes_context,
    spec_of,
    traced,
    without_gradient,
)
from autotune.records import labelled
from lang_core import ExecutionContext, checked_choices, near_names

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")


@checked_choices
class CompileRequest:
    """Call with a chosen configuration, as a function of its arrays alone.

    Attributes:
        call: kernel with its configuration.
        label: label of the ops; empty for none.
        specs: specs of the arrays, in the order of ``args`` and then ``kwargs``.
        arrays: example arrays, with or without data.
        arguments: example arguments ``(args, kwargs)``.
        differentiable: whether the kernel has its own gradient.
    """

    def __init__(
        self, call: KernelCall, args: tuple[Any, ...], kwargs: dict[str, Any], label: str, *, differentiable: bool
    ) -> None:
        self.call, self.label, self.differentiable = call, label, differentiable
        self.arguments: Final = (args, kwargs)
        self.arrays: Final = arrays_of((args, kwargs))
        self.specs: Final[list[ArraySpec]] = abstractify(self.arrays)

    @property
    def takes_context(self) -> bool:
        """True if the kernel is written in ``ctx.ops``."""
        return run_takes_context(self.call.kernel, self.call.platform, self.call.method)

    def filled(self, arrays: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the example arguments with other arrays."""
        remaining = iter(arrays)
        return map_arrays(lambda _: next(remaining), self.arguments)

    def run(self, *arrays: Any, ctx: Any = None) -> Any:
        """Runs the call on arrays, under its label."""
        args, kwargs = self.filled(arrays)
        call = KernelCall(self.call.kernel, self.call.cfg, self.call.platform, self.call.method, kwargs)
        with labelled(self.label, ctx):
            return call.run(*args, ctx=ctx)

    def run_in_jax(self, *arrays: Any, ctx: Any = None) -> Any:
        """Runs the call on JAX's arrays, with the kernel's own gradient, in a context on these if it takes one."""
        args, kwargs = self.filled(arrays)
        kwargs = map_arrays(without_gradient, kwargs)
        call = KernelCall(self.call.kernel, self.call.cfg, self.call.platform, self.call.method, kwargs)
        with labelled(self.label, jax=True):
            return run_in_jax(call, args, ctx) if self.differentiable else traced(call.run, args, ctx)


class KernelCompiler(Protocol):
    """Compiler of kernels for one device."""

    name: str

    def environment(self, arrays: list[Any]) -> Environment:
        """Returns the environment of the compiled function, with the compiler's version and flags."""
        ...

    def compile(self, request: CompileRequest) -> Callable[..., Any]:
        """Returns a function of the request's arrays that returns the kernel's result."""
        ...


class CompiledCall(NamedTuple):
    """Kernel compiled for arrays of certain specs.

    Attributes:
        cfg: configuration.
        label: label of the ops.
        function: compiled function of the arrays alone, in order.
    """

    cfg: Any
    label: str
    function: Callable[..., Any]


class CompiledKernel(Generic[Cfg, Out]):
    """Kernel compiled for the arrays of its example arguments, and for others when they come.

    Arrays of other shapes or dtypes, where the compiled function refuses them, are compiled for in the same way: a
    configuration is chosen for them first. The ``KEPT`` last compilations of this kind are kept.

    Attributes:
        cfg: configuration for the example arguments.
        label: label of the ops.
        compiler: name of the compiler.
        function: compiled function of the arrays alone, in order.

    Args:
        request: request that was compiled.
        compiler: its compiler.
        compile_for: function from prepared arguments of other specs to a compiled call.
    """

    KEPT: Final = 16

    def __init__(
        self,
        request: CompileRequest,
        compiler: KernelCompiler,
        compile_for: Callable[[tuple[Any, ...], dict[str, Any]], CompiledCall],
    ) -> None:
        first = compiled_call(request, compiler)
        self.cfg: Final[Cfg] = first.cfg
        self.label, self.function, self.compiler = first.label, first.function, compiler.name
        self._kernel, self._statics = request.call.kernel, _statics_of(request.arguments)
        self._specs, self._compile_for = tuple(request.specs), compile_for
        self._others: Final[dict[tuple[ArraySpec, ...], CompiledCall]] = {}
        self._lock: Final = threading.RLock()
        prepares = type(self._kernel).prepare is not Kernel.prepare
        args, kwargs = self._statics
        self._plain = not prepares and _statics_of(self._statics) == self._statics and not kwargs and _all_arrays(args)
        self._count = len(args)

    def __call__(self, *args: Any, **kwargs: Any) -> Out:
        """Runs the compiled function; compiles again for arrays that it refuses.

        Raises:
            KernelError: a static argument is not the one that it was compiled with.
        """
        if not (self._plain and not kwargs and len(args) == self._count):
            kwargs.pop("ctx", None)
            args, kwargs = prepared(self._kernel, args, kwargs)
            if _statics_of((args, kwargs)) != self._statics:
                raise KernelError(
                    f"the compiled {self._kernel.op} was made for {self._statics}, with * for arrays; found "
                    f"{_statics_of((args, kwargs))}: compile it for these"
                )
        arrays = args if self._plain else arrays_of((args, kwargs))
        try:
            return self.function(*arrays)
        except Exception:
            specs = tuple(map(spec_of, arrays)) if all(map(is_array, arrays)) else self._specs
            if specs == self._specs:
                raise
        return self._for(specs, args, kwargs).function(*arrays)

    def configurations(self) -> dict[tuple[ArraySpec, ...], Cfg]:
        """Returns the configuration for the specs of each compilation that is kept."""
        with self._lock:
            return {self._specs: self.cfg, **{specs: call.cfg for specs, call in self._others.items()}}

    def _for(self, specs: tuple[ArraySpec, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledCall:
        with self._lock:
            call = self._others.pop(specs, None) or self._compile_for(args, kwargs)
            self._others[specs] = call  # the last one used is the last one to go
            while len(self._others) > self.KEPT:
                del self._others[next(iter(self._others))]
            return call


def _statics_of(tree: Any) -> Any:
    return map_arrays(lambda _: "*", tree)


def _all_arrays(statics: tuple[Any, ...]) -> bool:
    return all(type(static) is str and static == "*" for static in statics)


def compiled_call(request: CompileRequest, compiler: KernelCompiler) -> CompiledCall:
    """Compiles a request.

    Raises:
        KernelError: the compiler gives something that cannot be called.
    """
    function = compiler.compile(request)
    if not callable(function):
        raise KernelError(f"the compiler {compiler.name!r} gave {function!r} for {request.call.kernel.op}: no function")
    return CompiledCall(request.call.cfg, request.label, function)


def compile_invocation(
    compiler: KernelCompiler,
    kernel: Kernel[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cfg: Any = None,
    method: str | None = None,
) -> Invocation[Any, Any]:
    """Returns a call of ``kernel`` (args, kwargs, cfg, method) by a compiler; KernelError where it has no device."""
    environment = compiler.environment(arrays_of((args, kwargs)))
    if not isinstance(environment, Environment):
        raise KernelError(f"the compiler {compiler.name!r}: environment() gave {environment!r}: return an Environment")

    def candidate(cfg: Any) -> Callable[..., Any]:
        function = compiler.compile(compile_request(environment, kernel, args, kwargs, cfg, method))
        return lambda *args, **kwargs: function(*arrays_of((args, kwargs)))

    return Invocation(
        kernel.op_id, args, kwargs, None, cfg, True, method, environment=environment, candidate_runner=candidate
    )


def compile_request(
    environment: Environment,
    kernel: Kernel[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cfg: Any,
    method: str | None,
    label: str = "",
) -> CompileRequest:
    """Returns the request to compile ``kernel`` with args, kwargs, cfg, method, label for an environment's platform."""
    call = KernelCall(kernel, cfg, environment.platform, method, kwargs)
    differentiable = has_gradient(kernel, environment.platform, method)
    return CompileRequest(call, args, kwargs, label, differentiable=differentiable)


_COMPILERS: Final[dict[str, Callable[..., KernelCompiler]]] = {}
# Named, not imported: each module loads an engine, and registers its compiler, at the first use.
_MODULES: Final = {"iree": "autotune.iree_compiler", "jax": "autotune.jax_compiler"}


def register_compiler(name: str, make: Callable[..., KernelCompiler]) -> None:
    """Registers a compiler under a name for ``Executor.compile``; ``make`` may take the name of a device."""
    _COMPILERS[name] = make


def compiler_named(name: str, device: str | None = None) -> KernelCompiler:
    """Returns a compiler.

    Args:
        name: name of the compiler.
        device: name of the device, for compilers of several devices; the compiler's default if None.

    Raises:
        KernelError: the name is unknown, or the compiler's package is not installed.
    """
    module = _MODULES.get(name)
    if name not in _COMPILERS and module is not None:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise KernelError(
                f"the compiler {name!r} is in {module}, which is not installed ({error}): install its engine, or "
                f"pass compiler= an object with environment() and compile()"
            ) from None
    if name not in _COMPILERS:
        known = sorted({*_COMPILERS, *_MODULES})
        raise KernelError(f"unknown compiler {name!r}; available: {', '.join(known)}{near_names(name, known)}")
    return _COMPILERS[name]() if device is None else _COMPILERS[name](device)


def traced_context() -> ExecutionContext:
    """Returns a context on JAX's arrays, in which kernels that are written in ``ctx.ops`` run where JAX traces.

    Raises:
        KernelError: the package with that context is not installed, or the compiler that is registered has none.
    """
    context = getattr(compiler_named("jax"), "context", None)
    if context is None:
        raise KernelError(
            "JAX traces the arguments of a kernel in ctx.ops, and the compiler registered as 'jax' has no context(): "
            "give it one that returns a run_jax.JaxExecutionContext, or pass ctx="
        )
    return context()


def with_jax_arrays(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """Calls a function of NumPy arrays on arrays of either kind; returns JAX's arrays if any argument is JAX's."""
    result = function(*map(as_numpy, arrays))
    return map_arrays(as_jax, result) if any(map(is_jax, arrays)) else result
