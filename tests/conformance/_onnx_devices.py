"""Cases on devices: many to a module, and cases whose text is the same share a function."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lang_core import CompileError
from run_iree import Session, compile_module, target_of_device
from tests.conformance._onnx_cases import Case
from tests.conformance._onnx_modes import Run, failures
from tests.emission._support import text_of

# Functions to a module: a compiler run costs about 0.3 s, and a module as a whole its memory.
_MODULE = 80

Alike = list[Case]


def alike(cases: Iterable[Case]) -> list[Alike]:
    """Cases in groups of the same text, the function's name aside."""
    groups: dict[str, Alike] = {}
    for case in cases:
        text = re.sub(rf"\b{case.name}\b", "case", text_of([case.graph()]))
        groups.setdefault(text, []).append(case)
    return list(groups.values())


def device_failures(cases: Iterable[Case], devices: Sequence[str], folder: Path) -> Iterator[str]:
    """Compiles cases for the target that the devices share, runs them on each, and says what went wrong.

    A module that does not compile is halved until the case at fault is found.
    """
    groups = alike(cases)
    for start in range(0, len(groups), _MODULE):
        yield from _of_module(groups[start : start + _MODULE], devices, folder)


def _of_module(groups: list[Alike], devices: Sequence[str], folder: Path) -> Iterator[str]:
    source, output = folder / "module.mlir", folder / "module.vmfb"
    source.write_text(text_of(group[0].graph() for group in groups))
    try:
        compile_module(source, output, target_of_device(devices[0]))
    except CompileError as error:
        if len(groups) == 1:
            text = " ".join(str(error).split())[:300]
            yield from (f"{case.name} on {', '.join(devices)}: {text}" for case in groups[0])
        else:
            half = len(groups) // 2
            yield from _of_module(groups[:half], devices, folder)
            yield from _of_module(groups[half:], devices, folder)
        return
    for device in devices:
        with Session(output, device) as session:
            for group in groups:
                yield from (f"{failure} (on {device})" for failure in failures(group, _on(session, group[0].name)))


def _on(session: Session, name: str) -> Run:
    return lambda case: [tensor.numpy() for tensor in session.function(name)(*case.arguments.values())]
