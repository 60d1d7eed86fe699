"""Mutants of emission rules: each line that a rule writes, changed in the ways in which a rule may be wrong."""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from compile_hlo.emit import RULES
from tests.emission._cases import Case
from tests.emission._op_cases import CASES
from tests.emission._support import graph_of, text_of
from tests.mutation._mutant import Mutant, Replaced

_OTHER: Final = {
    "add": "subtract",
    "subtract": "add",
    "multiply": "divide",
    "divide": "multiply",
    "maximum": "minimum",
    "minimum": "maximum",
    "and": "or",
    "or": "xor",
    "xor": "and",
    "not": "negate",
    "negate": "abs",
    "abs": "negate",
    "remainder": "divide",
    "power": "multiply",
    "shift_left": "shift_right_logical",
    "shift_right_logical": "shift_right_arithmetic",
    "exponential": "exponential_minus_one",
    "exponential_minus_one": "exponential",
    "log": "log_plus_one",
    "log_plus_one": "log",
    "sine": "cosine",
    "cosine": "sine",
    "tanh": "logistic",
    "logistic": "tanh",
    "sqrt": "cbrt",
    "rsqrt": "sqrt",
    "floor": "ceil",
    "ceil": "floor",
    "round_nearest_even": "round_nearest_afz",
}
_DIRECTIONS: Final = {"EQ": "NE", "NE": "EQ", "LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT"}
_TURNED: Final = {"EQ": "NE", "NE": "EQ", "LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}
_OPCODE: Final = re.compile(r"\"?stablehlo\.(\w+)")
_NUMBERS: Final = re.compile(
    r"(?P<key>(?:\w+ = |x )\[|\w+ = array<i64: |[\w_]+ = |^\S+ = stablehlo\.slice %\S+ \[)(?P<number>\d+)"
)


def _other_op(line: str) -> str:
    """Another function of the same type."""
    return _OPCODE.sub(lambda m: m[0].replace(m[1], _OTHER.get(m[1], m[1])), line, count=1)


def _inner_op(line: str) -> str:
    """Another function in ``applies stablehlo.add``."""
    return re.sub(r"applies stablehlo\.(\w+)", lambda m: f"applies stablehlo.{_OTHER.get(m[1], m[1])}", line)


def _swap(line: str) -> str:
    """The last two of the operands change places."""
    return re.sub(
        r"(%[\w#]+), (%[\w#]+)(?=[ ,:)\]]*(?: :|, (?:FLOAT|SIGNED|UNSIGNED|dim|contracting|batching|low)|\)))",
        r"\2, \1",
        line,
        count=1,
    )


def _direction(line: str) -> str:
    return re.sub(r"compare (\w\w)", lambda m: f"compare {_DIRECTIONS[m[1]]}", line)


def _turned_direction(line: str) -> str:
    return re.sub(r"compare (\w\w)", lambda m: f"compare {_TURNED[m[1]]}", line)


def _signedness(line: str) -> str:
    names = {"UNSIGNED": "SIGNED", "SIGNED": "UNSIGNED"}
    return re.sub(r", (UNSIGNED|SIGNED) :", lambda m: f", {names[m[1]]} :", line)


def _number(line: str, index: int) -> str:
    """One number of the attributes, one larger."""
    head, colon, types = line.rpartition(" : (")
    if not colon:
        head, colon, types = line.rpartition(" : ")
    matches = list(re.finditer(r"(?<![%\w#<.\-])\d+(?![\w.]|[^<]*>)", head)) if "<{" not in head else []
    matches = matches or list(re.finditer(r"(?<=[\[ :,])\d+(?=[\],>: ])", head))
    if index >= len(matches):
        return line
    at = matches[index]
    return f"{head[: at.start()]}{int(at[0]) + 1}{head[at.end() :]}{colon}{types}"


def _constant(line: str) -> str:
    """Another value of a constant of one value."""
    return re.sub(r"constant dense<(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false)>", _another, line)


def _another(match: re.Match[str]) -> str:
    value = {"true": "false", "false": "true"}.get(match[1]) or (
        str(float(match[1]) + 3.0) if re.search(r"[.eE]", match[1]) else str((int(match[1]) + 3) % 127)
    )
    return f"constant dense<{value}>"


def _reversed_list(line: str) -> str:
    """A list of the attributes, turned round."""
    return re.sub(r"= \[(\d+(?:, \d+)+)\]", lambda m: f"= [{', '.join(reversed(m[1].split(', ')))}]", line, count=1)


_CHANGES: Final[dict[str, Callable[[str], str]]] = {
    "another function": _other_op,
    "another reduction": _inner_op,
    "operands swapped": _swap,
    "equality counts otherwise": _direction,
    "the comparison turned round": _turned_direction,
    "signs otherwise": _signedness,
    "another constant": _constant,
    "a list turned round": _reversed_list,
    **{f"number {i} larger": functools.partial(_number, index=i) for i in range(5)},
}
# Where one line holds a kind of mistake, it is enough to try it so often per opcode.
_MOST: Final = 3


class _Writing:
    """An emission rule of which one written line is changed: line ``ordinal`` of those with this opcode."""

    def __init__(self, rule: Any, opcode: str, ordinal: int, change: Callable[[str], str]) -> None:
        self._rule, self._opcode, self._ordinal, self._change = rule, opcode, ordinal, change

    def __call__(self, emitter: Any, node: Any) -> None:
        seen = 0

        def write(text: str) -> object:
            nonlocal seen
            if opcode_of(text) == self._opcode:
                seen += 1
                if seen == self._ordinal:
                    text = self._change(text)
            return before(text)

        before = emitter._write
        emitter._write = write
        try:
            self._rule(emitter, node)
        finally:
            emitter._write = before


def opcode_of(text: str) -> str:
    """The StableHLO op that a line holds; ``return`` of regions and comments count as none."""
    match = _OPCODE.search(text)
    return "" if match is None or match[1] == "return" else match[1]


def _written(cases: Iterable[Case], op: str) -> Iterator[tuple[str, int, str, Case]]:
    """Lists what the op's rule writes for its cases: opcode, ordinal within one call of the rule, line."""
    lines: list[tuple[str, int, str]] = []
    rule = RULES[op]

    def listen(emitter: Any, node: Any) -> None:
        before = emitter._write
        seen: Counter[str] = Counter()

        def write(text: str) -> object:
            opcode = opcode_of(text)
            if opcode:
                seen[opcode] += 1
                lines.append((opcode, seen[opcode], text))
            return before(text)

        emitter._write = write
        try:
            rule(emitter, node)
        finally:
            emitter._write = before

    for case in cases:
        lines.clear()
        with Replaced([(RULES, op, listen)]):
            text_of([graph_of(case)])
        for opcode, ordinal, line in lines:
            yield opcode, ordinal, line, case


def emission_mutants() -> Iterator[Mutant]:
    """Every line of every rule, changed; the tests are those of the dtypes for which the change shows."""
    for op in sorted(RULES):
        dtypes: dict[tuple[str, int, str], list[str]] = {}
        for opcode, ordinal, line, case in _written([case for case in CASES if case.op == op], op):
            for what, change in _CHANGES.items():
                if ordinal <= _MOST and change(line) != line:
                    shown = dtypes.setdefault((opcode, ordinal, what), [])
                    if case.dtype.name not in shown:
                        shown.append(case.dtype.name)
        for (opcode, ordinal, what), names in dtypes.items():
            rule = _Writing(RULES[op], opcode, ordinal, _CHANGES[what])
            names.sort(
                key=lambda name: (
                    ("f32", "i32", "bool", "bf16", "u8").index(name)
                    if name in ("f32", "i32", "bool", "bf16", "u8")
                    else 9
                )
            )
            tests = tuple(f"interpreter_agrees_with_eager[{op}-{name}]" for name in names)
            applied = functools.partial(Replaced, [(RULES, op, rule)])
            yield Mutant(f"emission/{op}/{opcode} {ordinal}: {what}", applied, tests)
