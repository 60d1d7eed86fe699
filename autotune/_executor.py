"""The executor: chooses a configuration for a call, then runs, records or compiles it."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Never, TypeVar, overload

from autotune._run import Run, hosted, hosted_result
from autotune.caches import Key, Selection
from autotune.compilers import (
    CompiledCall,
    CompiledKernel,
    CompileRequest,
    KernelCompiler,
    compile_invocation,
    compile_request,
    compiled_call,
    compiler_named,
    serves,
)
from autotune.kernel import (
    Invocation,
    Kernel,
    KernelError,
    as_numpy,
    checked_cfg,
    is_trial,
    map_arrays,
    needs_methods,
    prepared,
    run_takes_context,
)
from autotune.records import (
    PREFIX,
    PROFILE,
    ProfiledCall,
    checked_prefix,
    is_recording_calls,
    labelled,
    record_invocation,
    stamp_mode,
    stamp_of,
)
from autotune.selection import ConfigChooser, ConfigSelectorChain

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")
Cfg_co = TypeVar("Cfg_co", covariant=True)
Out_co = TypeVar("Out_co", covariant=True)
Pullback = Callable[..., tuple[Any, ...]]


class Executor(Generic[Cfg_co, Out_co]):
    """Runner of kernels, with configurations from a chooser.

    Arguments may be NumPy arrays, tensors of a context, or JAX's arrays, also inside of ``jit`` and ``grad``. A kernel
    that is written in ``ctx.ops`` gets the context as ``ctx=``. Without tensors of a context, ``ctx=`` may be left out:
    NumPy arrays give NumPy arrays, and JAX's arrays, outside of ``jit`` and ``grad``, are computed by NumPy and given
    back as JAX's; if JAX traces them, the kernel gets a context on JAX's arrays. While a context records, the ops of
    the chosen variant are recorded under the call's label.

    To type checkers ``Executor[Cfg, Out]`` runs kernels with these configurations and results; one without types runs
    any kernel, and a result has the kernel's type in both cases.

    Args:
        chooser: source of configurations; a ``ConfigSelectorChain`` if None.
        stamp_prefix: first part of labels.
        compiler: default of ``compile``: a name, or a compiler.

    Raises:
        KernelError: the chooser or the compiler lacks a method.
    """

    def __init__(
        self,
        chooser: ConfigSelectorChain[Cfg_co, Out_co] | ConfigChooser | None = None,
        stamp_prefix: str = PREFIX,
        compiler: KernelCompiler | str | None = None,
    ) -> None:
        self.chooser: Final[ConfigChooser] = ConfigSelectorChain() if chooser is None else chooser
        self.stamp_prefix: Final = checked_prefix(stamp_prefix)
        self._compiler: Final = compiler
        needs_methods(self.chooser, "chooser", "choose")
        _check_compiler(compiler)

    @overload
    def __call__(
        self: "Executor[Never, Never]",
        kernel: Kernel[Cfg, Out],
        *args: Any,
        cfg: Cfg | None = None,
        stamp: bool = True,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Out: ...
    @overload
    def __call__(
        self: "Executor[Cfg, Out]",
        kernel: Kernel[Cfg, Out],
        *args: Any,
        cfg: Cfg | None = None,
        stamp: bool = True,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Out: ...
    def __call__(self, kernel: Kernel[Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a kernel.

        Args:
            kernel: kernel to run.
            *args: positional arguments, before ``prepare``.
            cfg: configuration for this call alone; chosen if None.
            stamp: whether to label the call, in the way that ``TAPELINE_OPS_STAMP`` names.
            method: way of execution, which selects variants ``run_<method>``.
            mesh: mesh of devices that share the work.
            batch_axes: axis of an added batch, by argument.
            **kwargs: keyword arguments, before ``prepare``, including ``ctx``.

        Raises:
            ConfigSelectionError: all tiers lack a configuration.
            KernelError: the kernel cannot take these arguments, or is not written as its contract says.
        """
        inv, hosts = _invocation(kernel, args, **kwargs)
        chosen, key = self._chosen(kernel, inv)
        run = Run(kernel, inv, chosen)
        profiled = None if is_trial() else PROFILE.get()
        label = self._label(kernel, inv, chosen, key)
        self._note(kernel, inv, key)
        started = time.perf_counter()
        with labelled(label, run.ctx, run.jax):
            result = run()
        if profiled is not None:
            profiled.append(ProfiledCall(label or kernel.op, chosen, time.perf_counter() - started))
        return hosted_result(result) if hosts else result

    @overload
    def choose_config(self: "Executor[Never, Never]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any) -> Cfg: ...
    @overload
    def choose_config(self: "Executor[Cfg, Out]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any) -> Cfg: ...
    def choose_config(self, kernel: Kernel[Any, Any], *args: Any, **kwargs: Any) -> Any:
        """Returns the configuration that a call with these arguments would run with.

        The kernel does not run, except to be tuned.
        """
        inv, _ = _invocation(kernel, args, **kwargs)
        return self._choice(kernel, inv)

    @overload
    def explain(
        self: "Executor[Never, Never]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any
    ) -> Selection[Cfg]: ...
    @overload
    def explain(self: "Executor[Cfg, Out]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any) -> Selection[Cfg]: ...
    def explain(self, kernel: Kernel[Any, Any], *args: Any, **kwargs: Any) -> Selection[Any]:
        """Returns the configuration that a call would run with, with its tier, provenance and measurements.

        Raises:
            KernelError: the chooser is not a ``ConfigSelectorChain``.
        """
        inv, _ = _invocation(kernel, args, **kwargs)
        if not isinstance(self.chooser, ConfigSelectorChain):
            raise KernelError(f"{type(self.chooser).__name__} cannot explain a choice: use a ConfigSelectorChain")
        return self.chooser.select(inv, kernel)

    @overload
    def value_and_pullback(
        self: "Executor[Never, Never]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any
    ) -> tuple[Out, Pullback]: ...
    @overload
    def value_and_pullback(
        self: "Executor[Cfg, Out]", kernel: Kernel[Cfg, Out], *args: Any, **kwargs: Any
    ) -> tuple[Out, Pullback]: ...
    def value_and_pullback(self, kernel: Kernel[Any, Any], *args: Any, **kwargs: Any) -> tuple[Any, Pullback]:
        """Returns the result, and a function from the result's gradient to the arguments'.

        The gradient is the kernel's own, or that of its ops if it is written in ``ctx.ops``.

        Raises:
            KernelError: the kernel lacks its own gradient, and computes without ``ctx.ops``.
        """
        inv, hosts = _invocation(kernel, args, **kwargs)
        run = Run(kernel, inv, self._choice(kernel, inv))
        output, pullback = run.value_and_pullback()

        def outside(tree: Any) -> Any:
            return hosted_result(run.unwrapped(tree)) if hosts else run.unwrapped(tree)

        return outside(output), lambda d_output: outside(
            pullback(map_arrays(as_numpy, d_output) if hosts else d_output)
        )

    @overload
    def compile(
        self: "Executor[Never, Never]",
        kernel: Kernel[Cfg, Out],
        *examples: Any,
        cfg: Cfg | None = None,
        compiler: KernelCompiler | str | None = None,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> CompiledKernel[Cfg, Out]: ...
    @overload
    def compile(
        self: "Executor[Cfg, Out]",
        kernel: Kernel[Cfg, Out],
        *examples: Any,
        cfg: Cfg | None = None,
        compiler: KernelCompiler | str | None = None,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> CompiledKernel[Cfg, Out]: ...
    def compile(
        self,
        kernel: Kernel[Any, Any],
        *examples: Any,
        cfg: Any = None,
        compiler: KernelCompiler | str | None = None,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> CompiledKernel[Any, Any]:
        """Chooses a configuration for the example arguments on the compiler's device, and compiles the kernel with it.

        Candidates are timed compiled. Configurations that were chosen for another runtime are not taken. Arrays of
        other shapes or dtypes are compiled for when they come, each with a configuration of their own. A ``cfg`` serves
        them too if its results have the shapes of those of the kernel's heuristic configuration. Static arguments, and
        the kernel's attributes, are those of this call for good.

        Args:
            kernel: kernel to compile.
            *examples: arrays, or specs; with specs nothing is tuned.
            cfg: configuration; chosen if None.
            compiler: name, or a compiler; the executor's if None. If that is None too, IREE for a kernel that is
                written in ``ctx.ops``, and JAX for others.
            method: way of execution, which selects variants.
            mesh: mesh of devices that share the work; part of the key.
            batch_axes: axis of an added batch, by argument; part of the key.
            **kwargs: keyword arguments of the kernel.
        """
        kwargs.pop("ctx", None)
        args, kwargs = prepared(kernel, examples, kwargs)
        chosen = self._compiler_for(kernel, compiler, method)

        def request(args: tuple[Any, ...], kwargs: dict[str, Any], cfg: Any) -> CompileRequest:
            inv = compile_invocation(chosen, kernel, args, kwargs, cfg, method, mesh=mesh, batch_axes=batch_axes)
            best, key = self._chosen(kernel, inv)
            self._note(kernel, inv, key)
            label = self._label(kernel, inv, best, key)
            return compile_request(inv.where(), kernel, args, kwargs, best, method, label)

        def compile_for(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledCall:
            inv = compile_invocation(chosen, kernel, args, kwargs, cfg, method, mesh=mesh, batch_axes=batch_axes)
            own = cfg is None or not serves(chosen, kernel, inv)
            return compiled_call(request(args, kwargs, None if own else cfg), chosen)

        return CompiledKernel(request(args, kwargs, cfg), chosen, compile_for)

    def _note(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], key: Key) -> None:
        if is_recording_calls():
            record_invocation(key.device, key.op, key.call, kernel, inv.args, inv.kwargs, inv.method, inv.batch_axes)

    def _compiler_for(
        self, kernel: Kernel[Any, Any], compiler: KernelCompiler | str | None, method: str | None
    ) -> KernelCompiler:
        wanted = compiler if compiler is not None else self._compiler
        if wanted is None:
            wanted = "iree" if run_takes_context(kernel, "cpu", method) else "jax"
        _check_compiler(wanted)
        return compiler_named(wanted) if isinstance(wanted, str) else wanted

    def _chosen(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> tuple[Any, Key]:
        if isinstance(self.chooser, ConfigSelectorChain):
            selection = self.chooser.select(inv, kernel)
            return selection.cfg, selection.key
        key = Key(inv.where().fingerprint, kernel.op, inv.make_key(kernel.key_builder, kernel.bucket), kernel.source)
        return self._choice(kernel, inv), key

    def _choice(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> Any:
        """Returns the configuration that the chooser gives, checked."""
        return checked_cfg(kernel, self.chooser.choose(inv, kernel), f"{type(self.chooser).__name__} chose")

    def _label(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any, key: Key) -> str:
        return stamp_of(stamp_mode(), self.stamp_prefix, key, inv, kernel, cfg) if inv.stamp else ""


def _invocation(
    kernel: Kernel[Any, Any],
    args: tuple[Any, ...],
    /,
    *,
    cfg: Any = None,
    stamp: bool = True,
    method: str | None = None,
    mesh: Any = None,
    batch_axes: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> tuple[Invocation[Any, Any], bool]:
    """Returns the invocation of a call, and whether JAX's arrays were converted for it."""
    args, kwargs, hosts = hosted(kernel, *prepared(kernel, args, kwargs), method)
    return Invocation(kernel.op_id, args, kwargs, batch_axes, cfg, stamp, method, mesh), hosts


def _check_compiler(compiler: Any) -> None:
    if not isinstance(compiler, str | None):
        needs_methods(compiler, "compiler", "environment", "compile")
