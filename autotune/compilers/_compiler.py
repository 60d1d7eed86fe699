"""The protocol of compilers, the kernels that they compile, and compilers by name."""

import collections
import copy
import dataclasses
import dis
import functools
import importlib
import inspect
import itertools
import threading
import types
from array import array as Array
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import numpy as np

from autotune.kernel import (
    ArraySpec,
    Environment,
    Invocation,
    Kernel,
    KernelCall,
    KernelError,
    Same,
    abstractify,
    arrays_of,
    as_jax,
    as_numpy,
    exact_key,
    functions_of,
    has_gradient,
    heuristic_of,
    is_array,
    is_jax,
    is_tracer,
    map_arrays,
    ordered_key,
    prepared,
    recorded_specs,
    result_shapes,
    run_in_jax,
    run_takes_context,
    spec_of,
    statics_of,
    traced,
    variant,
    without_gradient,
)
from autotune.records import labelled
from lang_core import ExecutionContext, checked_choices, load_extra, near_names

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
        self.label, self.differentiable = label, differentiable
        self.arguments: Final = _kept((args, kwargs))
        self.call: Final = dataclasses.replace(call, kwargs=self.arguments[1])
        self.arrays: Final = arrays_of((args, kwargs))
        self._statics_key: Final = exact_key(statics_of(self.arguments))
        self.specs: Final[list[ArraySpec]] = abstractify(self.arrays)

    @property
    def takes_context(self) -> bool:
        """True if the kernel is written in ``ctx.ops``."""
        return run_takes_context(self.call.kernel, self.call.platform, self.call.method)

    def filled(self, arrays: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the example arguments with other arrays.

        Raises:
            KernelError: a static argument, such as a function's closure, has changed since the request was made.
        """
        if exact_key(statics_of(self.arguments)) != self._statics_key:
            raise KernelError(
                f"{self.call.kernel.op}: a static argument of {statics_of(self.arguments)} has changed since it was "
                f"compiled: compile it again"
            )
        remaining = iter(arrays)
        return map_arrays(lambda _: next(remaining), self.arguments)

    def result_specs(self) -> list[ArraySpec]:
        """Returns the specs of the results; nothing is computed."""
        if self.takes_context:
            return recorded_specs(self.run, self.specs)
        return list(map(spec_of, arrays_of(result_shapes(self.run_in_jax, self.arrays))))

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

    Arrays of other shapes or dtypes are compiled for in the same way, whatever the compiler: a configuration is chosen
    for them first. The ``KEPT`` last compilations of this kind are kept.

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
        self._kernel, self._compile_for = request.call.kernel, compile_for
        self._attributes: Final = _attributes_key(self._kernel)
        self._has_settings: Final = bool(_settings(type(self._kernel)))
        self._specs: Final = tuple(request.specs)
        self._wanted: Final = [(spec.shape, _numpy_dtype(spec.dtype)) for spec in self._specs]
        self._others: Final[dict[Any, CompiledCall]] = {}
        self._lock: Final = threading.RLock()
        self._statics: Final = statics_of(request.arguments)
        self._form, self._statics_key = ordered_key(self._statics), exact_key(self._statics)
        args, kwargs = self._statics
        prepares = type(self._kernel).prepare is not Kernel.prepare
        self._plain: Final = not prepares and not kwargs and all(static is _STATIC for static in args)
        self._count: Final = len(args)
        run = variant(self._kernel, "run", request.call.platform, request.call.method)
        kinds = [parameter.kind for parameter in inspect.signature(run).parameters.values()]
        self._orders_keywords: Final = inspect.Parameter.VAR_KEYWORD in kinds

    def __call__(self, *args: Any, **kwargs: Any) -> Out:
        """Runs the compiled function; compiles again for arrays of other shapes or dtypes.

        Raises:
            KernelError: a static argument is not the one that it was compiled with, or the kernel's attributes have
                changed.
        """
        if self._plain and not kwargs and len(args) == self._count:
            form, arrays = self._form, args
        else:
            kwargs.pop("ctx", None)
            args, kwargs = prepared(self._kernel, args, kwargs)
            if not self._orders_keywords and kwargs.keys() == self._statics[1].keys():
                kwargs = {name: kwargs[name] for name in self._statics[1]}
            statics = statics_of((args, kwargs))
            form, arrays = ordered_key(statics), arrays_of((args, kwargs))
            if form != self._form and exact_key(statics) != self._statics_key:
                self._refuse(statics)
        if (self._has_settings or len(vars(self._kernel)) > 1) and self._attributes != _attributes_key(self._kernel):
            raise KernelError(
                f"the attributes of the compiled {self._kernel.op} have changed since it was compiled, and the "
                f"compiled code has the earlier ones: compile it again"
            )
        if form is self._form or form == self._form:
            if self._fits(arrays):
                return self.function(*arrays)
            if not all(map(is_array, arrays)):
                self._refuse(statics_of((args, kwargs)))
            if tuple(map(spec_of, arrays)) == self._specs:
                return self.function(*arrays)
        return self._for(form, args, kwargs, arrays).function(*arrays)

    def _fits(self, arrays: Any) -> bool:
        """Returns whether arrays of NumPy or JAX have the shapes and dtypes of the example."""
        try:
            for array, (shape, dtype) in zip(arrays, self._wanted, strict=True):
                if array.shape != shape or array.dtype != dtype:
                    return False
        except (AttributeError, TypeError):  # not an array, or a dtype that is not NumPy's
            return False
        return True

    def _refuse(self, statics: Any) -> NoReturn:
        raise KernelError(
            f"the compiled {self._kernel.op} was made for {self._statics}, with * for arrays; found {statics}: compile "
            f"it for these"
        )

    def configurations(self) -> dict[tuple[ArraySpec, ...], Cfg]:
        """Returns the configuration for the specs of each compilation that is kept."""
        with self._lock:
            others = {key[1]: call.cfg for key, call in self._others.items()}
            return {**others, self._specs: self.cfg}

    def _for(self, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any], arrays: Any) -> CompiledCall:
        # A configuration that was chosen while JAX traced was not measured, and serves traced calls alone.
        key = form, tuple(map(spec_of, arrays)), any(map(is_tracer, arrays))
        measured = (*key[:2], False)
        with self._lock:
            place = measured if measured in self._others else key
            call = self._others.pop(place, None) or self._compile_for(args, kwargs)
            self._others[place] = call  # the last one used is the last one to go
            while len(self._others) > self.KEPT:
                del self._others[next(iter(self._others))]
            return call


_STATIC: Final = statics_of(np.zeros(()))
# Types of attributes that count by their content.
_VALUES: Final = (
    *(bool, int, float, complex, str, bytes, bytearray, tuple, list, dict, set, frozenset),
    *(np.ndarray, np.generic, Array, collections.deque, types.SimpleNamespace),
)
_CONTAINERS: Final = (list, dict, set, bytearray, Array, collections.deque)
# Methods that change the container that they are called on.
_CHANGES: Final = frozenset(
    "add append appendleft clear discard extend extendleft insert pop popitem popleft remove setdefault update".split()
)


def _kept(tree: Any) -> Any:
    """Returns a tree with copies of its static values, which a caller may change later; arrays stay as they are."""
    if is_array(tree):
        return tree
    if isinstance(tree, Mapping):
        return {key: _kept(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [_kept(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    try:
        return copy.deepcopy(tree)
    except Exception:  # noqa: BLE001 - an object of any class; ``filled`` notices if it changes
        return tree


def _numpy_dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:  # of another library, such as a key of random numbers
        return None


def _attributes_key(kernel: Kernel[Any, Any]) -> tuple[Any, ...]:
    """Returns a key of a kernel's own attributes, and those of its class that are values.

    Containers, records and arrays count by their content, other objects by identity. Attributes that the kernel's
    methods change, such as counters, are left out: they do not affect the results.
    """
    kind = type(kernel)
    assigned, changed = _assigned(kind), _changed(kind)
    names = {**dict.fromkeys(_settings(kind)), **vars(kernel)}
    values = {name: getattr(kernel, name) for name in names if name not in assigned}
    kept = {k: v for k, v in values.items() if k not in changed or not isinstance(v, _CONTAINERS)}
    return tuple([(name, _attribute_key(value)) for name, value in kept.items()])


@functools.cache
def _settings(kernel: type) -> tuple[str, ...]:
    """Returns the names of a class's attributes that are values and of its own, not those that every kernel has."""
    names = dict.fromkeys(name for part in kernel.__mro__ for name in vars(part) if not hasattr(Kernel, name))
    return tuple(name for name in names if not name.startswith("__") and isinstance(getattr(kernel, name), _VALUES))


@functools.cache
def _assigned(kernel: type) -> frozenset[str]:
    """Returns the names of attributes that methods other than ``__init__`` assign."""
    steps = itertools.chain.from_iterable(_steps(kernel))
    return frozenset(step.argval for step in steps if step.opname in ("STORE_ATTR", "DELETE_ATTR"))


@functools.cache
def _changed(kernel: type) -> frozenset[str]:
    """Returns the names of containers that methods other than ``__init__`` change, such as a list of calls."""
    names: set[str | None] = set()
    for steps in _steps(kernel):
        for place, step in enumerate(steps):
            if step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
                names.add(_indexed(steps, place))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _CHANGES:
                names.add(_attribute_at(steps, place - 1))
    return frozenset(name for name in names if name is not None)


def _attribute_at(steps: list[dis.Instruction], place: int) -> str | None:
    """Returns the name of the attribute that a step of bytecode loads, or that it takes an element of."""
    step = steps[place]
    if step.opname == "BINARY_SUBSCR":
        return _indexed(steps, place)
    return step.argval if step.opname == "LOAD_ATTR" else None


def _indexed(steps: list[dis.Instruction], place: int) -> str | None:
    """Returns the name of the attribute that a step of bytecode reads or writes an element of."""
    missing = 1  # values on the stack that make the index
    while missing > 0 and place > 1:
        place -= 1
        missing -= dis.stack_effect(steps[place].opcode, steps[place].arg, jump=False)
    return _attribute_at(steps, place - 1)


def _steps(kernel: type) -> list[list[dis.Instruction]]:
    """Returns the bytecode of each method but ``__init__``."""
    members = [(name, member) for part in kernel.__mro__ for name, member in vars(part).items()]
    functions = [function for name, member in members if name != "__init__" for function in functions_of(member)]
    return [list(dis.get_instructions(function)) for function in functions]


def _attribute_key(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return kind, value
    if kind is list or kind is dict:
        parts = value if kind is list else [part for pair in value.items() for part in pair]
        return kind, *map(_attribute_key, parts)
    content = isinstance(value, _VALUES)
    if content or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return exact_key(value)
    return Same(value)


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
    *,
    mesh: Any = None,
    batch_axes: Mapping[str, int] | None = None,
) -> Invocation[Any, Any]:
    """Returns a call of ``kernel`` by a compiler.

    Args:
        compiler: compiler with the environment and device of the call.
        kernel: kernel to compile.
        args: example arguments.
        kwargs: example keyword arguments.
        cfg: configuration; chosen if None.
        method: way of execution, which selects variants.
        mesh: mesh of devices that share the work; part of the key.
        batch_axes: axis of an added batch, by argument; part of the key.

    Raises:
        KernelError: the compiler does not give an environment.
    """
    environment = compiler.environment(arrays_of((args, kwargs)))
    if not isinstance(environment, Environment):
        raise KernelError(f"the compiler {compiler.name!r}: environment() gave {environment!r}: return an Environment")

    def candidate(cfg: Any) -> Callable[..., Any]:
        function = compiler.compile(compile_request(environment, kernel, args, kwargs, cfg, method))
        return lambda *args, **kwargs: function(*arrays_of((args, kwargs)))

    return Invocation(
        kernel.op_id,
        args,
        kwargs,
        batch_axes,
        cfg,
        True,
        method,
        mesh,
        environment=environment,
        candidate_runner=candidate,
    )


def serves(compiler: KernelCompiler, kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> bool:
    """Returns whether the configuration that a call was given has results of the same specs as the heuristic one.

    True if the kernel lacks a heuristic configuration for the call or cannot be traced.

    Args:
        compiler: compiler of the kernel.
        kernel: kernel to compile.
        inv: call with a configuration of its own.
    """
    where = inv.where()
    if not run_takes_context(kernel, where.platform, inv.method) and compiler.name != "jax":
        return True

    def specs(cfg: Any) -> list[ArraySpec]:
        return compile_request(where, kernel, inv.args, dict(inv.kwargs), cfg, inv.method).result_specs()

    try:
        usual = specs(heuristic_of(kernel, inv))
    except Exception:  # noqa: BLE001 - the kernel's own; its heuristic configuration was not asked for
        return True
    return specs(inv.override_cfg) == usual


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
_LOADERS: Final[dict[str, Callable[[], object]]] = {
    "iree": functools.partial(importlib.import_module, "autotune.iree_compiler._iree"),
    "jax": functools.partial(load_extra, "autotune.jax_compiler", "jax", "compiler=jax"),
}


def register_compiler(name: str, make: Callable[..., KernelCompiler]) -> None:
    """Registers a compiler under a name for ``Executor.compile``; ``make`` may take the name of a device."""
    _COMPILERS[name] = make


def compiler_named(name: str, device: str | None = None) -> KernelCompiler:
    """Returns a compiler.

    Args:
        name: name of the compiler.
        device: name of the device, for compilers of several devices; the compiler's default if None.

    Raises:
        KernelError: the name is unknown.
        MissingPackageError: the compiler is JAX, and it is not installed.
    """
    if name not in _COMPILERS and name in _LOADERS:
        _LOADERS[name]()
    if name not in _COMPILERS:
        known = sorted({*_COMPILERS, *_LOADERS})
        raise KernelError(f"unknown compiler {name!r}; available: {', '.join(known)}{near_names(name, known)}")
    return _COMPILERS[name]() if device is None else _COMPILERS[name](device)


def traced_context() -> ExecutionContext:
    """Returns a context on JAX's arrays, for kernels written in ``ctx.ops`` while JAX traces.

    Raises:
        KernelError: the registered compiler lacks such a context.
        MissingPackageError: the package with that context is not installed.
    """
    context = getattr(compiler_named("jax"), "context", None)
    if context is None:
        raise KernelError(
            "JAX traces the arguments of a kernel in ctx.ops, and the compiler registered as 'jax' has no context(): "
            "give it one that returns a run_jax.JaxExecutionContext, or pass ctx="
        )
    return context()


def with_jax_arrays(function: Callable[..., Any], arrays: tuple[Any, ...]) -> Any:
    """Calls a function of NumPy arrays on arrays of either kind; returns JAX's arrays if any argument is JAX's.

    Raises:
        KernelError: JAX traces an argument, which then lacks data.
    """
    for number, array in enumerate(arrays):
        if is_tracer(array):
            raise KernelError(
                f"JAX traces array {number}, {spec_of(array)} (jit, grad, vmap), and the compiled kernel "
                f"needs its data: compile it with compiler='jax', call the executor itself, or take the gradient "
                f"by executor.value_and_pullback"
            )
    result = function(*map(as_numpy, arrays))
    return map_arrays(as_jax, result) if any(map(is_jax, arrays)) else result
