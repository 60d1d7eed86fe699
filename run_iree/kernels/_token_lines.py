"""Lines of a step along a row, for several tokens: lines that depend on x stand once per token, all others once.

So a row's bytes become integers once, and each token has the arithmetic of the kernel for one token, in its order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_DEFINED: Final = re.compile(r"(?P<name>%\w+) = (?P<value>.*)")
_NAME: Final = re.compile(r"%\w+")
_LOAD: Final = re.compile(r"(?P<op>vector|memref)\.load %(?P<memory>\w+)\[(?P<place>%\w+)\] : memref<\w+>(?P<kind>.*)")


@dataclass(frozen=True, slots=True)
class View:
    """Memory with x of several tokens.

    Attributes:
        name: name of the memref, without the ``%``.
        kind: its type.
        base: index, without the ``%``, at which x of the first token begins.
        stride: elements from a token to the next.
    """

    name: str
    kind: str
    base: str
    stride: int


def of_token(name: str, token: int) -> str:
    """Returns the name of a token's value."""
    return f"{name}_t{token}"


def for_tokens(lines: Iterable[str], count: int, views: Mapping[str, View]) -> list[str]:
    """Returns the lines of a step for several tokens; a token's ``%sum`` and ``%next`` are named by ``of_token``.

    A token's lines that follow one another stand together, and x is loaded where it is first used: the fewer values
    are alive, the fewer registers are needed.

    Args:
        lines: lines for one token, each of which makes one value.
        count: number of tokens.
        views: places of the tokens' x, by the names of the memories that the lines load it from.
    """
    repeated, waiting, run, made = {"%sum"}, dict[str, str](), list[str](), list[str]()

    def end_run() -> None:
        made.extend(line for token in range(count) for text in run for line in _renamed(text, token, repeated, views))
        run.clear()

    for line in lines:
        defined = _DEFINED.fullmatch(line)
        assert defined is not None, line
        name, value = defined["name"], defined["value"]
        load = _LOAD.fullmatch(value)
        if load is not None and load["memory"] in views:
            waiting[name] = line
        elif used := [operand for operand in _NAME.findall(value) if operand in repeated or operand in waiting]:
            for operand in used:
                if operand in waiting:
                    run.append(waiting.pop(operand))
                    repeated.add(operand)
            run.append(line)
            repeated.add(name)
        else:
            end_run()
            made.append(line)
    end_run()
    return made


def _renamed(line: str, token: int, repeated: set[str], views: Mapping[str, View]) -> list[str]:
    """Returns a line for a token; a load of x reads the token's."""

    def own(name: re.Match[str]) -> str:
        return of_token(name[0], token) if name[0] in repeated else name[0]

    load = _LOAD.search(line)
    if load is None or load["memory"] not in views:
        return [_NAME.sub(own, line)]
    view, name = views[load["memory"]], of_token(line.split(" ", 1)[0], token)
    return [
        f"{name}_from = arith.addi {load['place']}, %{view.base}{token} : index",
        f"{name} = {load['op']}.load %{view.name}[{name}_from] : {view.kind}{load['kind']}",
    ]


def bases(views: Iterable[View], count: int) -> list[str]:
    """Makes ``%<base><token>`` of each view from ``%<base>``, for so many tokens."""
    lines: list[str] = []
    for view in views:
        for token in range(count):
            name = f"{view.base}{token}"
            lines += [
                f"%{name}_skip = arith.constant {token * view.stride} : index",
                f"%{name} = arith.addi %{view.base}, %{name}_skip : index",
            ]
    return lines


def summed(names: Sequence[str], count: int) -> str:
    """Lists values of all tokens."""
    return ", ".join(of_token(name, token) for token in range(count) for name in names)
