"""Runs kernels: prepare, choose, run or record or compile."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import numpy as np

from autotune._compiler import (
    CompiledKernel,
    KernelCompiler,
    compile_invocation,
    compile_request,
    compiled_kernel,
    compiler_named,
)
from autotune._entry import Key, Selection
from autotune._errors import KernelError
from autotune._foreign import as_jax, as_numpy, is_jax, without_gradient
from autotune._gradient import COMPOSITE, KernelCall, run_in_jax, value_and_pullback
from autotune._hosted import hosted
from autotune._invocation import Invocation
from autotune._kernel import Kernel, has_gradient, takes_context, variant
from autotune._labels import PREFIX, stamp_mode, stamp_of
from autotune._profile import PROFILE, ProfiledCall
from autotune._registry import is_recording_calls, record_invocation
from autotune._scope import labelled
from autotune._selection import ConfigChooser, ConfigSelectorChain
from autotune._specs import arrays_of, map_arrays
from lang_core import EagerExecutionContext, EagerTensor, ExecutionContext, Tensor

Cfg = TypeVar("Cfg")
Out = TypeVar("Out")


class Executor:
    """Runs kernels with configurations that a chooser chooses.

    Arguments may be NumPy arrays, tensors of a context, or JAX's arrays, also inside of ``jit`` and ``grad``. A kernel
    that is written in ``ctx.ops`` is given the context as ``ctx=``; where no tensor comes from one, it need not be:
    NumPy arrays give NumPy arrays, and JAX's, outside of ``jit`` and ``grad``, are computed by NumPy and give JAX's.
    While the context records, the ops of the chosen variant are recorded, under the call's label.

    Args:
        chooser: a ``ConfigSelectorChain``, usually.
        stamp_prefix: begins labels.
        compiler: of ``compile``: a name, or the compiler itself.
    """

    def __init__(
        self,
        chooser: ConfigChooser | None = None,
        stamp_prefix: str = PREFIX,
        compiler: KernelCompiler | str | None = None,
    ) -> None:
        self.chooser: Final[ConfigChooser] = ConfigSelectorChain() if chooser is None else chooser
        self.stamp_prefix: Final = stamp_prefix
        self._compiler: Final = compiler

    def __call__(
        self,
        kernel: Kernel[Cfg, Out],
        *args: Any,
        cfg: Cfg | None = None,
        stamp: bool = True,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Out:
        """Runs a kernel.

        Args:
            kernel: to run.
            *args: its arguments, before ``prepare``.
            cfg: the configuration for this call alone; chosen if None.
            stamp: whether the call is labelled, as ``TAPELINE_OPS_STAMP`` says.
            method: way of execution, for variants ``run_<method>``.
            mesh: how devices share the work.
            batch_axes: by argument, where a batch was added.
            **kwargs: its arguments, before ``prepare``; among them ``ctx``.

        Raises:
            ConfigSelectionError: no configuration is to be had.
            KernelError: the arguments and the kernel do not go together.
        """
        args, kwargs, hosts = hosted(kernel, *_prepared(kernel, args, kwargs), method)
        inv: Invocation[Cfg, Out] = Invocation(kernel.op_id, args, kwargs, batch_axes, cfg, stamp, method, mesh)
        chosen, key = self._chosen(kernel, inv)
        run = _Run(kernel, inv, chosen)
        profiled = PROFILE.get()
        label = self._label(kernel, inv, chosen, key)
        self._note(kernel, inv, key)
        started = time.perf_counter()
        with labelled(label, run.ctx, run.jax):
            result = run()
        if profiled is not None:
            profiled.append(ProfiledCall(label or kernel.op, chosen, time.perf_counter() - started))
        return map_arrays(_as_jax, result) if hosts else result

    def choose_config(
        self,
        kernel: Kernel[Cfg, Out],
        *args: Any,
        cfg: Cfg | None = None,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Cfg:
        """The configuration that a call would run with. The kernel does not run, except to be tuned."""
        args, kwargs, _ = hosted(kernel, *_prepared(kernel, args, kwargs), method)
        return self.chooser.choose(Invocation(kernel.op_id, args, kwargs, batch_axes, cfg, False, method, mesh), kernel)

    def explain(
        self,
        kernel: Kernel[Cfg, Out],
        *args: Any,
        cfg: Cfg | None = None,
        method: str | None = None,
        mesh: Any = None,
        batch_axes: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Selection:
        """The same with its tier, provenance and measurements.

        Raises:
            KernelError: the chooser cannot tell.
        """
        args, kwargs, _ = hosted(kernel, *_prepared(kernel, args, kwargs), method)
        if not isinstance(self.chooser, ConfigSelectorChain):
            raise KernelError(f"{type(self.chooser).__name__} cannot explain a choice: use a ConfigSelectorChain")
        return self.chooser.select(Invocation(kernel.op_id, args, kwargs, batch_axes, cfg, False, method, mesh), kernel)

    def value_and_pullback(
        self, kernel: Kernel[Cfg, Out], *args: Any, cfg: Cfg | None = None, method: str | None = None, **kwargs: Any
    ) -> tuple[Out, Callable[..., tuple[Any, ...]]]:
        """The result, and the function from its gradient to those of the arguments, by the kernel's own rule.

        Raises:
            KernelError: the kernel has no gradient of its own.
        """
        args, kwargs, hosts = hosted(kernel, *_prepared(kernel, args, kwargs), method)
        inv: Invocation[Cfg, Out] = Invocation(kernel.op_id, args, kwargs, None, cfg, False, method)
        run = _Run(kernel, inv, self.chooser.choose(inv, kernel))
        if not run.differentiable:
            raise KernelError(f"kernel {kernel.op_id!r} has no fwd_with_residuals and vjp: give it both")
        output, pullback = value_and_pullback(run.call, args, run.ctx)

        def outside(tree: Any) -> Any:
            return map_arrays(_as_jax, run.outside(tree)) if hosts else run.outside(tree)

        return outside(output), lambda d_output: outside(
            pullback(map_arrays(as_numpy, d_output) if hosts else d_output)
        )

    def compile(
        self,
        kernel: Kernel[Cfg, Out],
        *examples: Any,
        cfg: Cfg | None = None,
        compiler: KernelCompiler | str | None = None,
        method: str | None = None,
        **kwargs: Any,
    ) -> CompiledKernel[Out]:
        """Chooses a configuration for the examples, for where the compiled function will run, and compiles.

        Candidates are compiled to be timed. What is chosen for another runtime does not count here.

        Args:
            kernel: to compile.
            *examples: arrays; or specs, with which nothing is tuned.
            cfg: the configuration; chosen if None.
            compiler: its name or the compiler itself; the executor's if None. If that is None too, IREE for a kernel
                that is written in ``ctx.ops``, and JAX for others.
            method: for variants.
            **kwargs: the kernel's.
        """
        kwargs.pop("ctx", None)
        args, kwargs = _prepared(kernel, examples, kwargs)
        chosen = self._compiler_for(kernel, compiler, method)
        inv = compile_invocation(chosen, kernel, args, kwargs, cfg, method)
        best, key = self._chosen(kernel, inv)
        self._note(kernel, inv, key)
        label = self._label(kernel, inv, best, key)
        return compiled_kernel(compile_request(inv.where(), kernel, args, kwargs, best, method, label), chosen)

    def _note(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], key: Key) -> None:
        if is_recording_calls():
            record_invocation(key.device, key.op, key.call, kernel, inv.args, inv.kwargs, inv.method, inv.batch_axes)

    def _compiler_for(
        self, kernel: Kernel[Any, Any], compiler: KernelCompiler | str | None, method: str | None
    ) -> KernelCompiler:
        wanted = compiler if compiler is not None else self._compiler
        if wanted is None:
            found = variant(kernel, "run", "cpu", method)
            wanted = "iree" if takes_context(getattr(found, "__func__", found)) else "jax"
        return compiler_named(wanted) if isinstance(wanted, str) else wanted

    def _chosen(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any]) -> tuple[Any, Key]:
        if isinstance(self.chooser, ConfigSelectorChain):
            selection = self.chooser.select(inv, kernel)
            return selection.cfg, selection.key
        key = Key(inv.where().fingerprint, kernel.op, inv.make_key(kernel.key_builder, kernel.bucket), kernel.source)
        return self.chooser.choose(inv, kernel), key

    def _label(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any, key: Key) -> str:
        return stamp_of(stamp_mode(), self.stamp_prefix, key, inv, kernel, cfg) if inv.stamp else ""


def _as_jax(array: Any) -> Any:
    """What a call that ran on the host gives back; a tensor of the caller's own context stays."""
    return as_jax(array) if isinstance(array, np.ndarray) else array


def _prepared(
    kernel: Kernel[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What ``prepare`` makes of the arguments. It is given the context only where it asks for it."""
    ctx = kwargs.pop("ctx", None)
    if ctx is None:
        return kernel.prepare(*args, **kwargs)
    given = {"ctx": ctx} if takes_context(type(kernel).prepare) else {}
    args, kwargs = kernel.prepare(*args, **given, **kwargs)
    return args, {**kwargs, "ctx": ctx}


class _Run:
    """One call, its configuration chosen."""

    def __init__(self, kernel: Kernel[Any, Any], inv: Invocation[Any, Any], cfg: Any) -> None:
        kwargs = dict(inv.kwargs)
        arrays = arrays_of((inv.args, kwargs))
        self.jax = any(map(is_jax, arrays))
        platform = inv.where().platform
        found = variant(kernel, "run", platform, inv.method)
        wants = takes_context(getattr(found, "__func__", found))
        self.ctx: ExecutionContext | None = kwargs.pop("ctx", None)
        self._made = wants and self.ctx is None
        if self._made:
            self._check_arrays(kernel, arrays)
            self.ctx = EagerExecutionContext()
        self._plain = self._made and not any(isinstance(array, Tensor) for array in arrays)
        if self.jax:
            kwargs = map_arrays(without_gradient, kwargs)
        self.args = inv.args
        self.call: Final = KernelCall(kernel, cfg, platform, inv.method, kwargs)
        self.differentiable: Final = has_gradient(kernel, platform, inv.method)

    def _check_arrays(self, kernel: Kernel[Any, Any], arrays: list[Any]) -> None:
        if self.jax:
            raise KernelError(
                f"kernel {kernel.op_id!r} is written in ctx.ops, and JAX traces its arguments: call it outside of jit "
                f"and grad, or compile it (Executor.compile(..., compiler='jax'))"
            )
        if any(isinstance(array, Tensor) and not isinstance(array, EagerTensor) for array in arrays):
            raise KernelError(
                f"kernel {kernel.op_id!r} was given a recorded value and no context: pass ctx= that records"
            )

    def __call__(self) -> Any:
        if self.differentiable and self.jax:
            return run_in_jax(self.call, self.args)
        ctx = self.ctx
        if ctx is not None and ctx.isRecording and self.differentiable:
            return ctx.composite(COMPOSITE, self._body, self.args, (self.call,))
        return self.outside(self.call.run(*self.args, ctx=ctx))

    def _body(self, *inputs: Any) -> Any:
        *args, call = inputs
        result = call.run(*args, ctx=self.ctx)
        if not all(isinstance(each, Tensor) for each in (result if type(result) is tuple else (result,))):
            raise KernelError(
                f"{call.kernel.op_id}: a kernel with its own gradient gives a tensor, or a tuple of tensors, to a "
                f"recording; found {type(result).__name__}"
            )
        return result

    def outside(self, result: Any) -> Any:
        """A result as the caller knows it: NumPy arrays where there were only such."""
        if not self._plain:
            return result
        return map_arrays(lambda array: array.data if isinstance(array, EagerTensor) else array, result)
