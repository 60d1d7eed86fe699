"""Lowering: entry points in, StableHLO text out."""

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from compile_dag import ComputeGraph, TagInfo, record
from compile_hlo._traced_name import traced_name
from compile_hlo.directions import KernelSignature, LoweredArgument, Signature, signature_of
from compile_hlo.emit import ArgumentParameters, Form, KernelSite, ModuleWriter, Overrides, ParameterTable, Write
from compile_hlo.quirks import QUIRKS
from compile_hlo.streaming import LargestStretch, RecordedFunction, StreamingPlan, StretchWriter
from lang_core import EntryPoint, RecordingError, TagSelection, TensorSpec, checked_choices, nests_regions

# Characters of a module's text that stay in memory until it is complete; the rest goes to a temporary file.
_TEXT_IN_MEMORY: Final = 1 << 18
_PIECE: Final = 1 << 16
# Compilers name files after functions and what they make of them: 255 bytes on most file systems.
_LONGEST_NAME: Final = 128


@dataclass(slots=True)
class LoweredFunction:
    """Lowered entry point.

    Attributes:
        signature: its arguments and results.
        parameters: specs by path.
        nodes_recorded: nodes that were recorded.
        nodes_pruned: nodes that outputs do not need.
        nodes_emitted: nodes that remained when equal ones were merged.
        tags: that a dump of the function has, in order; of loops too.
        sites: calls of kernels that a dump of the function has, in order.
        largest_stretch: part that decides how much memory the lowering took.
    """

    signature: Signature
    parameters: ParameterTable
    nodes_recorded: int
    nodes_pruned: int
    nodes_emitted: int
    tags: tuple[TagInfo, ...] = ()
    sites: tuple[KernelSite, ...] = ()
    largest_stretch: LargestStretch = field(default_factory=LargestStretch)

    @property
    def name(self) -> str:
        """The entry point's name."""
        return self.signature.name

    @property
    def results(self) -> dict[str, TensorSpec]:
        """Specs of the results by name, in order."""
        return {result.name: result.spec for result in self.signature.results}

    @property
    def directions(self) -> tuple[LoweredArgument, ...]:
        """The tensor arguments, which alone have a direction."""
        return tuple(argument for argument in self.signature.arguments if argument.kind == "tensor")


@dataclass(slots=True)
class LoweredModule:
    """Lowered module.

    Attributes:
        functions: its entry points, in order.
        kernels: its private block functions; without block functions, the blocks that are written in place of them.
        helpers: its other private functions, which emission rules share.
        traced: its entry points once more, named by ``traced_name``, with traces of the tensors of kernels.
    """

    functions: list[LoweredFunction] = field(default_factory=list)
    kernels: list[KernelSignature] = field(default_factory=list)
    helpers: list[KernelSignature] = field(default_factory=list)
    traced: list[LoweredFunction] = field(default_factory=list)

    def parameters(self) -> ParameterTable:
        """Returns the weights that the module reads."""
        table = ParameterTable()
        for function in self.functions:
            table.update(function.parameters)
        return table


def record_entry_point(entry_point: EntryPoint, tags: TagSelection | None = None) -> ComputeGraph:
    """Records an entry point with the selected tags, without reading weights."""
    names = [argument.name for argument in entry_point.arguments]
    specs = [argument.spec for argument in entry_point.arguments]
    return record(entry_point.fn, *specs, input_names=names, name=entry_point.name, tags=tags)


@checked_choices
@nests_regions
def lower_module(
    entry_points: Sequence[EntryPoint],
    write: Write,
    form: Form,
    *,
    streaming: bool = False,
    block_functions: bool = True,
    tags: TagSelection | None = None,
    trace_kernels: bool = False,
    overrides: Overrides = QUIRKS,
    locations: bool = False,
) -> LoweredModule:
    """Records, prunes, merges and emits entry points, one after the other. Each is recorded once.

    Args:
        entry_points: public functions of the module.
        write: function that takes the text, piece by piece, once all of it is there: of a lowering that fails it gets
            nothing.
        form: way in which parameters come in.
        streaming: True to keep the recording on disk, instead of in memory. The text is the same.
        block_functions: True to write blocks as private functions, alike ones once
            (docs/design/0005-block-functions.md). If False, blocks are written in place: their kernels are described
            alike, but the text lacks functions of their names.
        tags: selection of the model's tags to write, as traces that IREE delivers to a session (docs/dump.md); if
            None, the text is that of a model without tags.
        trace_kernels: True to write each entry point a second time, without tags, with traces of those tensors of
            kernels that ``tags`` selects. The calls are those of a module with block functions.
        overrides: emission rules that avoid faults of compilers; with ``NO_OVERRIDES`` the text is plain StableHLO.
        locations: True to write each op's module path, which ends in the label of a kernel's call, as its location: the
            dumps and profiles of a compiler then name it (docs/kernels.md).

    Returns:
        The functions and kernels that were written.

    Raises:
        GraphError: the recording breaks a rule of graphs.
        RecordingError: an entry point's name is not a valid function name, or two entry points have the same name.
        InputError: a glob of ``tags`` does not match a tag of any entry point.
    """
    _check_names(entry_points)
    lowered = LoweredModule()
    text = tempfile.SpooledTemporaryFile(_TEXT_IN_MEMORY, "w+", encoding="utf-8", newline="")  # noqa: SIM115 - below
    gathered = _GatheredText(text.write)
    with (
        text,
        ModuleWriter(gathered, form, overrides, block_functions=block_functions, locations=locations) as writer,
    ):
        for entry_point in entry_points:
            lowered.functions.append(_lowered(entry_point, writer, form, tags, streaming))
        if tags is not None and trace_kernels:
            writer.trace_kernels(tags)
            points = map(_traced, entry_points)
            lowered.traced = [_lowered(entry_point, writer, form, None, streaming) for entry_point in points]
        lowered.kernels, lowered.helpers = writer.kernels(), writer.helpers()
        written = lowered.kernels if block_functions else []
        _check_private(entry_points, [*written, *lowered.helpers, *lowered.traced])
        if tags is not None:
            tags.check()
        writer.end()
        gathered.flush()
        text.seek(0)
        while piece := text.read(_PIECE):
            write(piece)
    return lowered


class _GatheredText:
    """Writer that passes on long pieces: a temporary file asks for its position after each write."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._pieces: list[str] = []
        self._size = 0

    def __call__(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= _PIECE:
            self.flush()

    def flush(self) -> None:
        """Passes on the gathered results."""
        self._write("".join(self._pieces))
        self._pieces.clear()
        self._size = 0


def _check_names(entry_points: Sequence[EntryPoint]) -> None:
    seen = set[str]()
    for entry_point in entry_points:
        name = entry_point.name
        if not name or not name.isprintable() or name.startswith("__") or len(name.encode()) > _LONGEST_NAME:
            shown = repr(name) if len(name) <= _LONGEST_NAME else f"{name[:20]!r}... of {len(name)} characters"
            raise RecordingError(
                f"lower_module: an entry point is named {shown}: expected 1 to {_LONGEST_NAME} bytes of printable "
                f"characters that do not begin with two underscores, which compilers' own functions have"
            )
        if name in seen:
            raise RecordingError(f"lower_module: two entry points are named {name!r}: give each a name of its own")
        seen.add(name)


def _check_private(entry_points: Sequence[EntryPoint], made: Sequence[KernelSignature | LoweredFunction]) -> None:
    taken = {function.name for function in made}
    for entry_point in entry_points:
        if entry_point.name in taken:
            raise RecordingError(
                f"lower_module: an entry point is named {entry_point.name!r}, as a function that the lowering makes: "
                f"choose another name"
            )


def _traced(entry_point: EntryPoint) -> EntryPoint:
    """Returns an entry point that keeps its arguments.

    A trace of an argument updated in place would show the update.
    """
    arguments = tuple(replace(argument, alias_result=None) for argument in entry_point.arguments)
    return replace(entry_point, name=traced_name(entry_point.name), arguments=arguments)


def _lowered(
    entry_point: EntryPoint, writer: ModuleWriter, form: Form, tags: TagSelection | None, streaming: bool
) -> LoweredFunction:
    names = [argument.name for argument in entry_point.arguments]
    specs = [argument.spec for argument in entry_point.arguments]
    with RecordedFunction(streaming) as sink:
        recorded = record(entry_point.fn, *specs, input_names=names, name=entry_point.name, sink=sink, tags=tags)
        with closing(StreamingPlan(recorded)) as plan:
            results = {name: value.spec for name, value in recorded.outputs.items()}
            directions = plan.directions(entry_point.arguments)
            if isinstance(form, ArgumentParameters):
                form.specs = plan.parameters()
            writer.keep_sums(entry_point.batch_invariant)
            function = writer.begin(entry_point.name, recorded.inputs, entry_point.arguments, results, directions)
            stretches = StretchWriter(recorded, function)
            for stretch in plan:
                stretches.write(stretch)
            stretches.end()
    return LoweredFunction(
        signature=signature_of(entry_point.name, entry_point.arguments, results, function.directions),
        parameters=function.parameters,
        nodes_recorded=recorded.nodes,
        nodes_pruned=recorded.nodes - stretches.needed,
        nodes_emitted=stretches.emitted,
        tags=tuple(stretches.tags),
        sites=function.sites,
        largest_stretch=recorded.largest,
    )
