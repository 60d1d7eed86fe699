"""Facts of a module's text: calls of block functions, and the roles of their arguments (caches, numbers, weights)."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

HEAD: Final = re.compile(r"  func\.func (public|private) @([\w.$-]+)\((.*?)\) -> (.*) \{\n?$")
CALL: Final = re.compile(r"    (?:(%\w+)(?::(\d+))? = )?(?:func\.)?call @([\w.$-]+)\((.*?)\) : \((.*)\) -> (.*?)\n?$")
NUMBER: Final = re.compile(r'    (%\w+) = "tensor\.from_elements"\((%\w+)\) : \((\w+)\) -> tensor<\w+>')
RETURN: Final = re.compile(r"    return (.*?) : (.*?)\n?$")
ARGUMENT: Final = re.compile(r"(%[\w.$-]+): (tensor<[^>]*>|\w+)(?: \{([^}]*)\})?")
ALIAS: Final = re.compile(r"tf\.aliasing_output = (\d+)")
TENSOR: Final = re.compile(r"tensor<[^>]*>|!hal\.buffer_view")
VALUE: Final = re.compile(r"%[A-Za-z0-9_.$-]+(?:#\d+)?")
SLICE: Final = " = stablehlo.dynamic_"
BARRIER: Final = re.compile(r"    (%\w+) = stablehlo\.optimization_barrier (%\w+) : ")
WEIGHT: Final = "%parameter"
_WHOLE_NUMBERS: Final = re.compile(r"tensor<(?:.*x)?i(?:32|64)>")


@dataclass(frozen=True, slots=True)
class OutlinedCall:
    """Call of a block function: its results' name and count, and operands with their types."""

    name: str
    count: int
    callee: str
    operands: tuple[str, ...]

    def results(self) -> tuple[str, ...]:
        """Returns the names of the results."""
        return (self.name,) if self.count == 1 else tuple(f"{self.name}#{i}" for i in range(self.count))


@dataclass(slots=True)
class BlockEntry:
    """Facts of one entry point's text: its caches, and their uses."""

    aliases: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    calls: list[OutlinedCall] = field(default_factory=list)
    returned: tuple[str, ...] = ()
    uses: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Roles:
    """Arguments of a block function.

    Attributes:
        caches: result by argument, for the arguments that are updated in place.
        numbers: arguments that are a number of the entry point.
    """

    caches: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutlineRule:
    """Condition on which a block function stays a function: a call costs some 15 microseconds.

    Attributes:
        calls: least number of calls by one entry point.
        weight_bytes: least size of the weights of a call; a CPU needs a millisecond or more to read the default. A
            block at whose end the host waits if it is inlined may have less: there a call saves time.
    """

    calls: int = 8
    weight_bytes: int = 16 << 20


@dataclass(slots=True)
class BlockFunction:
    """Private function.

    Attributes:
        arguments: names and types.
        waits: True if it has an optimization barrier, which splits an entry point's work if it is inlined.
        slices: True if it has slices that begin at run-time positions, which the host reads if they are tensors.
    """

    arguments: tuple[tuple[str, str], ...]
    waits: bool = False
    slices: bool = False

    @property
    def weight_bytes(self) -> int:
        """Size of the weights that a call takes, in bytes."""
        return sum(_nbytes(kind) for name, kind in self.arguments if name.startswith(WEIGHT))


def note_line(entry: BlockEntry, line: str) -> None:
    """Adds a line of an entry point to its facts."""
    if "stablehlo.constant" in line:  # it may be long, and uses nothing
        return
    values = VALUE.findall(line)
    if call := CALL.match(line):
        operands = tuple(filter(None, call[4].split(", ")))
        entry.calls.append(OutlinedCall(call[1] or "", int(call[2] or bool(call[1])), call[3], operands))
        values = list(operands)
    elif number := NUMBER.match(line):
        entry.numbers[number[1]] = number[2]
    elif returned := RETURN.match(line):
        entry.returned = tuple(returned[1].split(", "))
    entry.uses.update(values)


def common_roles(name: str, function: BlockFunction, entries: Iterable[BlockEntry], rule: OutlineRule) -> Roles | None:
    """Returns the roles of a block function's arguments; None if calls differ, or it cannot stay a function."""
    roles: set[Roles | None] = set()
    most = 0
    for entry in entries:
        calls = [call for call in entry.calls if call.callee == name]
        most = max(most, len(calls))
        roles |= {_roles_of_call(call, entry) for call in calls}
    if most < rule.calls or len(roles) != 1 or (only := next(iter(roles))) is None:
        return None
    if not function.waits and function.weight_bytes < rule.weight_bytes:
        return None
    if not function.slices:
        return only
    values = enumerate(function.arguments)
    others = [kind for i, (value, kind) in values if i not in only.numbers and not value.startswith(WEIGHT)]
    return None if any(map(_WHOLE_NUMBERS.fullmatch, others)) else only  # the host might wait for them in each layer


def _nbytes(kind: str) -> int:
    """Returns the size of a tensor type in bytes.

    >>> _nbytes("tensor<2x3xbf16>")
    12
    """
    *dims, dtype = kind[len("tensor<") : -1].split("x")
    return math.prod(map(int, dims)) * int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz").split("E")[0]) // 8


def _roles_of_call(call: OutlinedCall, entry: BlockEntry) -> Roles | None:
    caches: list[tuple[int, int]] = []
    for i, operand in enumerate(call.operands):
        if operand in entry.aliases:
            result = entry.returned[entry.aliases[operand]]
            if result not in call.results() or entry.uses[operand] != 1 or entry.uses[result] != 1:
                return None  # something else reads the cache, before or after
            caches.append((i, call.results().index(result)))
    return Roles(tuple(caches), tuple(i for i, operand in enumerate(call.operands) if operand in entry.numbers))
