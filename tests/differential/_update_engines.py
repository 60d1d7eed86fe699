"""Engines that drawn programs of updates run on, many programs in one module, and what differs from NumPy."""

import functools
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np

from compile_dag import evaluate, record
from compile_hlo import lower_module
from compile_hlo.emit import ArgumentParameters, ExternalParameters, Form, Overrides, tensor_type
from compile_hlo.quirks import QUIRKS, XLA_PARTITIONED
from lang_core import CompileError, DeviceError, EagerExecutionContext, VerificationError
from run_iree import Session, compile_module, target_of_device
from run_jax import StableHloFunction, jax_function
from tests.differential._jax import QUICKLY
from tests.differential._trial import Array
from tests.differential._updates import UpdateProgram
from tests.emission._support import interpret

Results = list[list[Array]]
DEVICES: Final = {
    "llvm-cpu": ("local-task", "local-sync"),
    "vmvx": ("vmvx",),
}
"""Devices of IREE by engine: those of an engine run what is compiled once."""
_EAGER: Final = EagerExecutionContext()
# A quarter of the processor time goes into threads, and a seventh into checks of the compiler after each of its passes;
# dispatches, buffers and aliases are those of a bundle.
_COMPILED_QUICKLY: Final = {
    "llvm-cpu": ("--mlir-disable-threading",),
    "vmvx": ("--mlir-disable-threading", "--verify=false"),
}
_LINE: Final = re.compile(r"\(at updates\.mlir:(\d+)")
_HEAD: Final = re.compile(r"^  func\.func (?:public|private) @p(\d+)\(", re.MULTILINE)


class RefusedError(CompileError):
    """The compiler refuses a module of programs.

    Attributes:
        place: place of the program that it refuses; None if that is unknown.
    """

    def __init__(self, message: str, place: int | None) -> None:
        super().__init__(message)
        self.place = place


class Difference(NamedTuple):
    """Result of an engine that is not NumPy's.

    Attributes:
        engine: name of the engine.
        place: place of the program among those that ran.
        message: what is wrong.
    """

    engine: str
    place: int
    message: str


def eagerly(program: UpdateProgram) -> list[Array]:
    """Returns the results of the eager context; its arrays are copied, as it may give views."""
    return [np.array(tensor.numpy()) for tensor in program(_EAGER, *map(_EAGER.constant, program.inputs))]


def _graph(programs: Sequence[UpdateProgram], folder: Path) -> Results:
    results = []
    for program in programs:
        names = [f"x{i}" for i in range(len(program.inputs))]
        named = lambda ctx, *tensors, program=program: {f"r{i}": t for i, t in enumerate(program(ctx, *tensors))}  # noqa: E731
        graph = record(named, *program.specs, input_names=names)
        given = {name: _EAGER.constant(array) for name, array in zip(names, program.inputs, strict=True)}
        results.append([np.array(tensor.numpy()) for tensor in evaluate(graph, _EAGER, given).values()])
    return results


def _interpreted(programs: Sequence[UpdateProgram], folder: Path) -> Results:
    return [
        interpret(record(program, *program.specs, name=f"p{i}"), program.inputs) for i, program in enumerate(programs)
    ]


def text_of(programs: Sequence[UpdateProgram], form: Form, overrides: Overrides) -> tuple[str, Any]:
    """Returns a module of programs p0, p1, ... and what was lowered."""
    text = io.StringIO()
    lowered = lower_module(
        [p.entry_point(f"p{i}") for i, p in enumerate(programs)], text.write, form, overrides=overrides
    )
    return text.getvalue(), lowered


def _on_iree(
    devices: tuple[str, ...], overrides: Overrides, programs: Sequence[UpdateProgram], folder: Path
) -> Results:
    """Compiles programs once, and runs them on each device; returns the results of the last device.

    Raises:
        RefusedError: the compiler refuses one of the programs.
        AssertionError: a device changes an argument that is not donated, or two devices differ.
    """
    text, lowered = text_of(programs, ExternalParameters(), overrides)
    source, output = folder / "updates.mlir", folder / "updates.vmfb"
    source.write_text(text)
    target = target_of_device(devices[0])
    try:
        compile_module(source, output, target, extra_flags=_COMPILED_QUICKLY[target])
    except CompileError as error:
        raise RefusedError(str(error), _program_at(text, str(error))) from None
    signatures = [function.signature for function in lowered.functions]
    results: Results = []
    for device in devices:
        with Session(output, device, signatures=signatures) as session:
            called = [_called(session, f"p{i}", program) for i, program in enumerate(programs)]
        for i, (one, other) in enumerate(zip(results, called, strict=False)):
            for array, again in zip(one, other, strict=True):
                np.testing.assert_array_equal(array, again, f"p{i} on {' and '.join(devices)}")
        results = called
    return results


def _called(session: Session, name: str, program: UpdateProgram) -> list[Array]:
    uploaded = {place: session.upload(array) for place, array in enumerate(program.inputs) if array.ndim}
    given = [uploaded.get(place, array) for place, array in enumerate(program.inputs)]
    results = [tensor.numpy() for tensor in session.function(name)(*given)]
    for place in uploaded.keys() - dict(program.donated).keys():
        kept, array = uploaded[place].numpy(), program.inputs[place]
        np.testing.assert_array_equal(kept, array, f"{name}: argument {place} after the call")
    return results


def _program_at(text: str, message: str) -> int | None:
    """Returns the place of the program that an error of the compiler names by a line; None if it names none."""
    line = _LINE.search(message)
    heads = _HEAD.findall("\n".join(text.splitlines()[: int(line[1])])) if line else []
    return int(heads[-1]) if heads else None


def _on_xla(overrides: Overrides, programs: Sequence[UpdateProgram], folder: Path) -> Results:
    text, _ = text_of(programs, ArgumentParameters(), overrides)
    specs = [spec for program in programs for spec in program.specs]
    results = [eager.result_specs for eager in (record(p, *p.specs) for p in programs)]
    flat = [spec for some in results for spec in some]
    lines = [
        f"func.func public @all({', '.join(f'%a{i}: {tensor_type(spec)}' for i, spec in enumerate(specs))}) -> "
        f"({', '.join(map(tensor_type, flat))}) {{"
    ]
    begin = 0
    names = []
    for i, (program, some) in enumerate(zip(programs, results, strict=True)):
        given = ", ".join(f"%a{begin + k}" for k in range(len(program.specs)))
        begin += len(program.specs)
        kinds = ", ".join(map(tensor_type, program.specs))
        lines.append(f"%r{i}:{len(some)} = call @p{i}({given}) : ({kinds}) -> ({', '.join(map(tensor_type, some))})")
        names += [f"%r{i}#{k}" for k in range(len(some))]
    lines.append(f"return {', '.join(names)} : {', '.join(map(tensor_type, flat))}\n}}\n}}\n")
    text = text.rstrip().removesuffix("}") + "\n".join(lines)
    return _split(StableHloFunction(text, "all")(*(x for program in programs for x in program.inputs)), results)


def _split(arrays: Sequence[Any], results: Sequence[Sequence[Any]]) -> Results:
    rest = iter(arrays)
    return [[np.asarray(next(rest)) for _ in some] for some in results]


def _in_jax_context(programs: Sequence[UpdateProgram], folder: Path) -> Results:
    """Runs programs in the context of JAX's arrays, in one compiled function that donates what they donate."""
    donated: list[int] = []
    begin = 0
    for program in programs:
        donated += [begin + place for place, _ in program.donated]
        begin += len(program.inputs)

    def every(*arrays: Any) -> Any:
        rest = iter(arrays)
        return [
            jax_function(lambda ctx, *tensors, program=program: tuple(program(ctx, *tensors)))(
                {}, *(next(rest) for _ in program.inputs)
            )
            for program in programs
        ]

    given = [jax.numpy.array(x, copy=True) for program in programs for x in program.inputs]
    compiled = jax.jit(every, donate_argnums=tuple(donated), compiler_options=QUICKLY)
    return [[np.asarray(array) for array in some] for some in compiled(*given)]


Engine = Callable[[Sequence[UpdateProgram], Path], Results]


def engines_of(overrides: Overrides = QUIRKS, xla: Overrides = QUIRKS) -> dict[str, Engine]:
    """Returns the engines by name, with the overrides of modules for IREE and for XLA.

    ``mesh`` is XLA with the forms of modules that it partitions, on one device.
    """
    return {
        "graph": _graph,
        "interpreter": _interpreted,
        "xla": functools.partial(_on_xla, xla),
        "mesh": functools.partial(_on_xla, XLA_PARTITIONED),
        "jax": _in_jax_context,
        **{name: functools.partial(_on_iree, devices, overrides) for name, devices in DEVICES.items()},
    }


def differences(name: str, engine: Engine, programs: Sequence[UpdateProgram], folder: Path) -> list[Difference]:
    """Returns what an engine gets wrong; where programs fail together, those that do are found."""
    try:
        results = engine(programs, folder)
    except (CompileError, DeviceError, VerificationError, AssertionError) as error:
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        if len(programs) == 1:
            return [Difference(name, 0, message)]
        place = error.place if isinstance(error, RefusedError) else None
        if place is not None:  # the others are compiled once more, together
            rest = differences(name, engine, [*programs[:place], *programs[place + 1 :]], folder)
            others = [d._replace(place=d.place + (d.place >= place)) for d in rest]
            return sorted([Difference(name, place, message), *others], key=lambda one: one.place)
        half = len(programs) // 2
        later = differences(name, engine, programs[half:], folder)
        return differences(name, engine, programs[:half], folder) + [d._replace(place=d.place + half) for d in later]
    wrong = []
    for place, (program, arrays) in enumerate(zip(programs, results, strict=True)):
        for i, (array, wanted) in enumerate(zip(arrays, eagerly(program), strict=True)):
            if (array.dtype, array.shape) != (wanted.dtype, wanted.shape):
                wrong.append(
                    Difference(name, place, f"r{i} is {array.dtype}{array.shape}, not {wanted.dtype}{wanted.shape}")
                )
                break
            if not np.array_equal(array, wanted):
                wrong.append(Difference(name, place, f"r{i} is {array.tolist()}, wanted {wanted.tolist()}"))
                break
    return wrong
