"""Block functions that stay functions when a module is compiled.

IREE inlines private functions, so compile time grows with the number of layers. A block function that many layers call
is written in a form that IREE 3.13 compiles once and calls without a copy (design note 0005 has the measurements):

- ``util.func`` with ``inlining_policy = #util.inline.never``; ``func.func`` is inlined whatever it says.
- A cache is passed as the buffer that the caller gave (``!hal.buffer_view``), and updated in place inside.
- A number is passed as a number: as a tensor, the host would wait for it in every layer.
- Other arguments pass a barrier before they are used. Without one, IREE does not know on which device an argument of
  a function is, and copies it there: weights too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from compile_hlo.directions import DECLARATION
from run_iree.compiler._block_calls import (
    ALIAS,
    ARGUMENT,
    BARRIER,
    CALL,
    HEAD,
    RETURN,
    SLICE,
    TENSOR,
    VALUE,
    WEIGHT,
    BlockEntry,
    BlockFunction,
    OutlinedCall,
    OutlineRule,
    Roles,
    common_roles,
    note_line,
)
from run_iree.compiler._scatters import ScatterFunctions
from run_iree.compiler._schedule import Schedule

_VIEW: Final = "!hal.buffer_view"
_DEVICE: Final = "#hal.device.affinity<@__device_0>"  # IREE's name of the first device of --iree-hal-target-device
_REFLECTION: Final = "iree.reflection = {"
_END: Final = "  }\n"


@dataclass(frozen=True, slots=True)
class BlockOutline:
    """Block functions of a module that stay functions.

    Attributes:
        calls: number of calls by block function, by entry point.
    """

    calls: Mapping[str, Mapping[str, int]]
    _entries: Mapping[str, BlockEntry]
    _roles: Mapping[str, Roles]

    def schedules(self, compiled: Mapping[str, Schedule]) -> dict[str, Schedule] | None:
        """Returns the schedules of entry points, with their callees; None if a block does not run at once.

        An entry point waits for the results of a block, so its updates of caches have to be part of the same
        submission.
        """
        if any(compiled.get(name, Schedule()).submissions != 1 for name in self._roles):
            return None
        totals = {name: schedule for name, schedule in compiled.items() if name not in self._roles}
        for entry, counts in self.calls.items():
            for name, count in counts.items():
                totals[entry] = totals.get(entry, Schedule()).plus(compiled[name], count)
        return totals

    def lines(self, source: Iterable[str]) -> Iterator[str]:
        """Yields the lines of the module with these functions in their form, and calls of them."""
        lines = iter(source)
        for line in lines:
            head = HEAD.match(line)
            if head is None or (head[2] not in self._roles and not self.calls.get(head[2])):
                yield line
            elif head[1] == "public":
                yield from _EntryText(self._entries[head[2]], self._roles).lines(head, lines)
            else:
                yield from _block(head, self._roles[head[2]], lines)


def outline(source: Iterable[str], rule: OutlineRule) -> BlockOutline | None:
    """Finds the block functions that can stay functions; None if there is none.

    Args:
        source: lines of the module.
        rule: condition on which they do.
    """
    entries: dict[str, BlockEntry] = {}
    functions: dict[str, BlockFunction] = {}
    called_by_others: set[str] = set()
    entry: BlockEntry | None = None
    function = BlockFunction(())
    for line in source:
        if head := HEAD.match(line):
            arguments = ARGUMENT.findall(head[3])
            entry = None
            if head[1] == "public":
                entry = entries[head[2]] = BlockEntry(
                    {name: int(alias[1]) for name, _, attributes in arguments if (alias := ALIAS.search(attributes))}
                )
            else:
                function = functions[head[2]] = BlockFunction(tuple((name, kind) for name, kind, _ in arguments))
        elif entry is not None:
            note_line(entry, line)
        elif call := CALL.match(line):
            called_by_others.add(call[3])
        elif BARRIER.match(line):
            function.waits = True
        elif SLICE in line:
            function.slices = True
    roles = {
        name: common
        for name, function in functions.items()
        if name not in called_by_others and (common := common_roles(name, function, entries.values(), rule)) is not None
    }
    if not roles:
        return None
    counts = {
        name: dict(Counter(call.callee for call in entry.calls if call.callee in roles))
        for name, entry in entries.items()
    }
    return BlockOutline(counts, entries, roles)


class _EntryText:
    """Text of an entry point that passes on its caches as buffers.

    Args:
        entry: facts of the text.
        roles: of block functions that stay functions.
    """

    def __init__(self, entry: BlockEntry, roles: Mapping[str, Roles]) -> None:
        self._entry, self._roles = entry, roles
        self._renamed: dict[str, str] = {}
        self._views: dict[str, int] = {}
        for call in entry.calls:
            if call.callee in roles:
                self._add(call, roles[call.callee])

    def _add(self, call: OutlinedCall, roles: Roles) -> None:
        results, caches = call.results(), dict(roles.caches)
        kept = [result for i, result in enumerate(results) if i not in caches.values()]
        self._renamed |= {result: call.name if len(kept) == 1 else f"{call.name}#{i}" for i, result in enumerate(kept)}
        for argument, result in roles.caches:
            operand = call.operands[argument]
            self._views[operand] = self._entry.aliases[operand]
            self._renamed[results[result]] = operand

    def lines(self, head: re.Match[str], lines: Iterator[str]) -> Iterator[str]:
        """Yields the function's lines; takes those behind its head from an iterator."""
        yield self._head(head)
        for line in lines:
            call, returned = CALL.match(line), RETURN.match(line)
            if call and call[3] in self._roles:
                yield self._call(call)
            elif returned:
                values = [self._renamed.get(value, value) for value in returned[1].split(", ")]
                yield f"    return {', '.join(values)} : {', '.join(self._viewed(TENSOR.findall(returned[2])))}\n"
            elif "stablehlo.constant" in line:
                yield line
            else:
                yield VALUE.sub(lambda match: self._renamed.get(match[0], match[0]), line)
            if line == _END:
                return

    def _viewed(self, kinds: Sequence[str]) -> list[str]:
        return [_VIEW if i in self._views.values() else kind for i, kind in enumerate(kinds)]

    def _head(self, head: re.Match[str]) -> str:
        arguments = ARGUMENT.findall(head[3])
        results, _, rest = head[4].partition(" attributes ")
        kinds = TENSOR.findall(results)
        given = ", ".join(map(self._argument, arguments))
        declared = [_declared(i, kind, attributes) for i, (_, kind, attributes) in enumerate(arguments)]
        outputs = [f"%output{i}: {kind}" for i, kind in enumerate(kinds)]
        declaration = f"sync func @{head[2]}({', '.join(declared)}) -> ({', '.join(outputs)})"
        reflection = f'{_REFLECTION}{DECLARATION} = "{declaration}"'
        if _REFLECTION in rest:
            rest = rest.replace(_REFLECTION, f"{reflection}, ", 1)
        else:
            rest = f"{{{reflection}}}{', ' + rest[1:] if rest else '}'}"
        wanted = ", ".join(self._viewed(kinds))
        return f"  func.func public @{head[2]}({given}) -> ({wanted}) attributes {rest} {{\n"

    def _argument(self, argument: tuple[str, str, str]) -> str:
        name, kind, attributes = argument
        if name in self._views:
            return f"{name}: {_VIEW}"
        return f"{name}: {kind} {{{attributes}}}" if attributes else f"{name}: {kind}"

    def _call(self, match: re.Match[str]) -> str:
        roles = self._roles[match[3]]
        operands, kinds = match[4].split(", "), TENSOR.findall(match[5])
        caches = dict(roles.caches)
        for i in caches:
            kinds[i] = _VIEW
        for i in roles.numbers:
            operands[i], kinds[i] = self._entry.numbers[operands[i]], kinds[i][len("tensor<") : -1]
        operands = [self._renamed.get(operand, operand) for operand in operands]
        wanted = [kind for i, kind in enumerate(TENSOR.findall(match[6])) if i not in caches.values()]
        left = "" if not wanted else f"{match[1]}{f':{len(wanted)}' if len(wanted) > 1 else ''} = "
        given = f"({', '.join(operands)}) : ({', '.join(kinds)}) -> ({', '.join(wanted)})"
        return f"    {left}util.call @{match[3]}{given}\n"


def _declared(number: int, kind: str, attributes: str) -> str:
    """Returns an argument as IREE declares it."""
    alias = ALIAS.search(attributes)
    return f"%input{number}: {kind}" + (f" {{iree.abi.output = {alias[1]} : index}}" if alias else "")


def _block(head: re.Match[str], roles: Roles, lines: Iterator[str]) -> Iterator[str]:
    """Yields a block function that is never inlined."""
    caches = dict(roles.caches)
    given, first = [], []
    arguments = ARGUMENT.findall(head[3])
    for i, (name, kind, _) in enumerate(arguments):
        other = f"{name}.given"
        if i in caches:
            given.append(f"{other}: {_VIEW}")
            first.append(f'{name} = hal.tensor.import consume {other} "{name[1:]}" : {_VIEW} -> {kind}')
        elif i in roles.numbers:
            number = kind[len("tensor<") : -1]
            given.append(f"{other}: {number}")
            first.append(f'{name} = "tensor.from_elements"({other}) : ({number}) -> {kind}')
        else:
            given.append(f"{other}: {kind}")
            barrier = "util.optimization_barrier" if name.startswith(WEIGHT) else "flow.tensor.barrier"
            where = "" if name.startswith(WEIGHT) else f" on {_DEVICE}"
            first.append(f"{name} = {barrier} {other} : {kind}{where}")
    kinds = TENSOR.findall(head[4])
    kept = [i for i in range(len(kinds)) if i not in caches.values()]
    wanted = ", ".join(kinds[i] for i in kept)
    never = "attributes {inlining_policy = #util.inline.never}"
    yield f"  util.func private @{head[2]}({', '.join(given)}) -> ({wanted}) {never} {{\n"
    yield from (f"    {line}\n" for line in first)
    last, scatters = _LastBarriers(), ScatterFunctions(head[2])
    for line in lines:
        returned = RETURN.match(line)
        if returned is None:
            for kept_line in last.lines(line):
                yield from scatters.lines(kept_line)
        else:
            values = [last.barred.get(value, value) for value in returned[1].split(", ")]
            for i, result in caches.items():
                cache = f"{arguments[i][0]}.given"
                updated = f"{values[result]} : {kinds[result]}"
                yield f"    %updated{result} = hal.tensor.alias {updated} to {cache} : {_VIEW}\n"
            yield f"    util.return{' ' if kept else ''}{', '.join(values[i] for i in kept)}"
            yield f" : {wanted}\n" if kept else "\n"
        if line == _END:
            yield from scatters.functions()
            return


class _LastBarriers:
    """Barriers before a return, which are left out: a function's end is one, and the host would wait at them.

    Attributes:
        barred: operand of a barrier by its result, for those that nothing has used so far.
    """

    def __init__(self) -> None:
        self.barred: dict[str, str] = {}
        self._held: list[str] = []

    def lines(self, line: str) -> Iterator[str]:
        """Yields a line, and before it barriers that may be used; holds a barrier back."""
        if barrier := BARRIER.match(line):
            self.barred[barrier[1]] = barrier[2]
            self._held.append(line)
            return
        if line != _END and not line.lstrip().startswith("//"):
            yield from self._held
            self._held.clear()
            self.barred.clear()
        yield line
