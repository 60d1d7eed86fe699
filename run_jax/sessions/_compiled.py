"""Entry points compiled by XLA."""

import contextlib
import ctypes
import dataclasses
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import DescriptionError, DeviceError, TensorSpec, VerificationError, plain_bools
from run_jax.sessions._artifact import ArtifactFunction
from run_jax.sessions._memory import fetch
from run_jax.sessions._observed import Observation
from run_jax.sessions._partitions import CPU
from run_jax.sessions._program import Program
from run_jax.sessions._traces import Trace, met, most_rounds

_EXACT: Final[Any] = {"xla_allow_excess_precision": False}  # else XLA drops roundings to bf16 that the module asks for
# Else XLA converts every weight before the first product: all of them lie in memory at once, new in each call.
_ON_CPU: Final[Any] = _EXACT | {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


class _Compiled(NamedTuple):
    """Function of XLA, the parameters that it takes last, and the traces among its results."""

    function: Any
    parameters: tuple[jax.Array, ...]
    traces: tuple[Trace, ...]


class CompiledEntry:
    """Entry point on the devices, compiled when it is first called."""

    def __init__(self, program: Program, signature: Signature) -> None:
        """Compiles nothing yet."""
        self._program: Final = program
        self._signature: Final = signature
        self._name: Final = signature.name
        self._rounds = 1
        self._parameters: Final = program.parameters if signature.parameters is None else signature.parameters
        self.shardings: Final = tuple(
            program.partitions.value(self._name, argument.name, argument.spec) for argument in signature.arguments
        )

    def observed(self, arrays: Sequence[Any]) -> Observation | None:
        """Tells the session's observer the arguments of a call.

        Returns the receiver of the rest, None without observer.
        """
        observer = self._program.observer
        if observer is None:
            return None
        return observer.called(self._signature, [_copied(array) for array in arrays])

    def __call__(self, arrays: Sequence[Any], observation: Observation | None = None) -> list[jax.Array]:
        """Runs it and waits for the results; donated arrays are dead afterwards, also when it fails.

        Args:
            arrays: arrays of JAX or NumPy, per argument; donated ones are JAX's.
            observation: receiver of traces and results.

        Raises:
            DeviceError: XLA refuses the module, or the device failed.
        """
        results = self._run(arrays)
        count, traces = len(self._signature.results), self._compiled.traces
        while traces and (rounds := most_rounds(traces, results[count:])) > self._rounds:
            self._rounds = rounds
            self.__dict__.pop("_compiled")
            results, traces = self._run(arrays), self._compiled.traces
        if observation is not None:
            for key, tensors in met(traces, results[count:]):
                observation.traced(key, tensors)
            observation.returned([_copied(array) for array in results[:count]])
        return results[:count]

    def _run(self, arrays: Sequence[Any]) -> list[jax.Array]:
        run = self._compiled
        began = time.perf_counter()
        try:
            results = run.function(*arrays, *run.parameters)
            jax.block_until_ready(results)
        except jax.errors.JaxRuntimeError as error:
            raise DeviceError(f"{self._name!r} of {self._program.origin!r} failed on the device: {error}") from None
        self._program.counters.module_seconds += time.perf_counter() - began
        return list(results)

    def text(self) -> str:
        """Returns the HLO that XLA runs on one device, with explicit collectives."""
        return self._compiled.function.as_text()

    @cached_property
    def _compiled(self) -> _Compiled:
        program, signature = self._program, self._signature
        platform, devices = program.partitions.platform, program.partitions.mesh.size
        function = program.artifact.function(self._name, len(signature.arguments), platform, devices, self._rounds)
        used = [index - len(signature.arguments) for index in function.kept[len(signature.arguments) :]]
        self._check(function)
        self._check_precision(function, platform)
        parameters = tuple(program.parameter(self._parameters[index]) for index in used)
        wanted = [*zip((argument.spec for argument in signature.arguments), self.shardings, strict=True)]
        given = [
            *(_abstract(spec, sharding) for spec, sharding in wanted),
            *(jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding) for array in parameters),
        ]
        results = tuple(program.partitions.value(self._name, result.name, result.spec) for result in signature.results)
        results += (program.partitions.whole,) * len(function.shown)
        # With traces a call may have to be made again, with place for more rounds of loops.
        donated = tuple(i for i, argument in enumerate(signature.arguments) if argument.donated and not function.traces)
        exported = _exported(self._name, function, given)
        jitted = jax.jit(
            exported.call,
            in_shardings=tuple(value.sharding for value in given),
            out_shardings=results,
            donate_argnums=donated,
            keep_unused=True,
        )
        options = _ON_CPU if platform == CPU else _EXACT
        try:
            compiled = jitted.lower(*given).compile(compiler_options=options)
        except (jax.errors.JaxRuntimeError, ValueError) as error:
            raise DeviceError(f"{program.origin!r}: XLA refuses {self._name!r}: {error}") from None
        give_back_memory()
        return _Compiled(compiled, parameters, function.traces)

    def _check_precision(self, function: ArtifactFunction, platform: str) -> None:
        """Refuses a function with f32 products that the devices would compute with fewer bits."""
        if platform != CPU and not function.all_bits:
            raise VerificationError(
                f"{self._program.origin!r}: {self._name!r} has products of f32 that do not ask for all their bits, "
                f"and {platform} computes those with fewer bits: a former version exported it: export again"
            )

    def _check(self, function: ArtifactFunction) -> None:
        """Refuses a module with another function than the described one."""
        signature, program = self._signature, self._program
        count = len(signature.arguments)
        described = [argument.spec for argument in signature.arguments]
        results = [result.spec for result in signature.results]
        if len(function.arguments) != count + len(self._parameters) or (
            [*function.arguments[:count]],
            [*function.results],
        ) != (described, results):
            raise DescriptionError(
                f"entry point {self._name!r}: {program.origin!r} has ({len(function.arguments)} values) -> "
                f"{[*function.results]}, the description ({count} arguments, {len(self._parameters)} parameters) -> "
                f"{results}, or arguments of other types: the two do not belong together: export again"
            )
        for index in function.kept[count:]:
            name, spec = self._parameters[index - count], function.arguments[index]
            held = program.source(name).spec(name)
            if held != spec:
                raise DescriptionError(
                    f"entry point {self._name!r}: parameter {name!r} is {spec!r} in {program.origin!r}, {held!r} in "
                    f"the archive: the two do not belong together: export again"
                )


def give_back_memory() -> None:
    """Gives memory that is no longer used back to the system, if the C library can: compiling leaves much of it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _abstract(spec: TensorSpec, sharding: jax.sharding.NamedSharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy, sharding=sharding)


def _exported(name: str, function: ArtifactFunction, given: Sequence[jax.ShapeDtypeStruct]) -> jax.export.Exported:
    """Returns the function as one that JAX exported: that of a stand-in with the same signature, and our module.

    It is made for one device and may be called on many: shardings are the caller's.
    """
    results = [(spec.shape, spec.dtype.numpy) for spec in (*function.results, *function.shown)]

    def stand_in(*_: Any) -> tuple[jax.Array, ...]:
        return tuple(jnp.zeros(shape, dtype) for shape, dtype in results)

    plain = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in given]
    exported = jax.export.export(jax.jit(stand_in, keep_unused=True))(*plain)
    return dataclasses.replace(
        exported,
        fun_name=name,
        mlir_module_serialized=function.artifact,
        module_kept_var_idx=tuple(range(len(plain))),
    )


def as_array(argument: LoweredArgument, value: Any) -> np.ndarray[Any, Any]:
    """Returns a number or an array of NumPy that was checked as an array."""
    return plain_bools(np.asarray(value, argument.spec.dtype.numpy))


def _copied(array: Any) -> np.ndarray[Any, Any]:
    return fetch(array) if isinstance(array, jax.Array) else np.asarray(array)
