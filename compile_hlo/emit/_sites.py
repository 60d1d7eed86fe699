"""Calls of kernels in a function that is written flat, each with traces of its tensors, for dumps."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compile_hlo.directions import Direction, KernelSignature
from compile_hlo.emit._builder import Builder, SsaValue
from compile_hlo.emit._types import quoted
from lang_core import TagSelection, TensorSpec, tag_name

# Keys of traces, before the name of the call; names of tags have no colon.
BEFORE: Final = "before:"
"""Beginning of the keys of traces of arguments, before the name of the call."""
AFTER: Final = "after:"
"""Beginning of the keys of traces of results, before the name of the call."""

# Number of the value, or path of the parameter.
Source = int | str


@dataclass(frozen=True, slots=True)
class SiteTensor:
    """Tensor of a call.

    Attributes:
        name: name of the call, with ``arg`` or ``result`` and its place among the arguments or results.
        direction: IN, INOUT or OUT. A result that is an update of an argument has the argument's name, and INOUT.
        spec: shape and dtype.
        source: number of the value in the recording, or path of the parameter.
        selected: True if a dump shows it.
    """

    name: str
    direction: Direction
    spec: TensorSpec
    source: Source
    selected: bool


@dataclass(frozen=True, slots=True)
class KernelSite:
    """Call of a kernel.

    Attributes:
        name: path of the module and kind of the kernel, and from the second such call on a number.
        kernel: symbol of the private function in the module.
        call_site: number of the call in the function, from 0, in the order of the program.
        module_path: block, or path of the module that calls.
        line: Python source line, as ``file:line``.
        in_region: True inside of a loop or a branch, where it is run any number of times.
        before: tensor arguments in order.
        after: results in order.
    """

    name: str
    kernel: str
    call_site: int
    module_path: str
    line: str
    in_region: bool
    before: tuple[SiteTensor, ...]
    after: tuple[SiteTensor, ...]

    @property
    def layer(self) -> int | None:
        """Number of the layer: the first one in the path."""
        return next((int(part) for part in self.module_path.split(".") if part.isdecimal()), None)

    @property
    def signature(self) -> list[str]:
        """Directions of the tensor arguments, then OUT for each result."""
        return [tensor.direction for tensor in self.before] + ["OUT"] * len(self.after)


@dataclass(frozen=True, slots=True)
class Call:
    """Call that is about to be written.

    Attributes:
        function: kernel that is called.
        path: block, or path of the module that calls.
        line: Python source line.
        in_region: True inside of a loop or a branch.
        given: passed values, in order.
        sources: source of each of these.
        made: source of each result.
    """

    function: KernelSignature
    path: str
    line: str
    in_region: bool
    given: Sequence[SsaValue]
    sources: Sequence[Source]
    made: Sequence[Source]


class SiteTracer:
    """Writer of the traces of one function.

    Attributes:
        sites: calls that are traced.
    """

    def __init__(self, selection: TagSelection) -> None:
        self.sites: list[KernelSite] = []
        self._selection = selection
        self._names: dict[str, int] = {}
        self._count = 0

    def before(self, e: Builder, call: Call) -> KernelSite | None:
        """Writes the trace of a call's arguments; returns None if none of the call's tensors is selected."""
        site = self._site(call)
        self._count += 1
        if not any(tensor.selected for tensor in (*site.before, *site.after)):
            return None
        self.sites.append(site)
        _trace(e, f"{BEFORE}{site.name}", [value for value in call.given if value.spec.shape])
        return site

    def after(self, e: Builder, site: KernelSite, results: Sequence[SsaValue]) -> None:
        """Writes the trace of a call's results."""
        _trace(e, f"{AFTER}{site.name}", results)

    def _site(self, call: Call) -> KernelSite:
        function = call.function
        base = tag_name(call.path, function.kind)
        number = self._names[base] = self._names.get(base, 0) + 1
        name = base if number == 1 else f"{base}.{number}"
        before = tuple(
            self._tensor(f"{name}.arg{place}", argument.effective, argument.spec, source)
            for place, (argument, source) in enumerate(zip(function.arguments, call.sources, strict=True))
            if argument.spec.shape
        )
        after = tuple(
            self._tensor(
                f"{name}.result{place}" if result.alias_arg is None else f"{name}.arg{result.alias_arg}",
                result.direction,
                result.spec,
                source,
            )
            for place, (result, source) in enumerate(zip(function.results, call.made, strict=True))
        )
        return KernelSite(name, function.name, self._count, call.path, call.line, call.in_region, before, after)

    def _tensor(self, name: str, direction: Direction, spec: TensorSpec, source: Source) -> SiteTensor:
        return SiteTensor(name, direction, spec, source, self._selection.selects(name))


def _trace(e: Builder, key: str, values: Sequence[SsaValue]) -> None:
    if values:
        names, kinds = ", ".join([value.name for value in values]), ", ".join([value.kind for value in values])
        segments = f"operandSegmentSizes = array<i32: {len(values)}, 0>"
        e.line(f'"flow.tensor.trace"({names}) {{key = {quoted(key)}, {segments}}} : ({kinds}) -> ()')
