"""Outlines as JSON (schema in docs/bundle.md), and as DOT, the language of Graphviz."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from tapeline.analysis.outline._labels import box_lines, function_title, port_lines, prefix_of, times
from tapeline.analysis.outline._outline import Box, FunctionOutline, Item, Outline, Repeat, boxes_of

SCHEMA: Final = 1


def outline_json(outline: Outline) -> str:
    """Returns the outline as JSON text."""
    functions = [_function_fields(function) for function in outline.functions]
    return json.dumps({"schema": SCHEMA, "functions": functions, "omitted": outline.omitted}, indent=1) + "\n"


def _function_fields(function: FunctionOutline) -> dict[str, Any]:
    return {
        "name": function.name,
        "kind": function.kind,
        "call_sites": function.call_sites,
        "operations": function.operations,
        "arguments": [asdict(argument) for argument in function.arguments],
        "results": [asdict(result) for result in function.results],
        "items": [_item_fields(item) for item in function.items],
        "edges": [asdict(edge) for edge in function.edges],
    }


def _item_fields(item: Item) -> dict[str, Any]:
    if isinstance(item, Box):
        return asdict(item)
    return {"count": item.count, "items": [_item_fields(one) for one in item.items]}


def outline_dot(outline: Outline) -> str:
    """Returns the outline in DOT: a cluster per function, with a cluster per repetition in it."""
    return "\n".join(_lines(outline)) + "\n"


def _lines(outline: Outline) -> Iterator[str]:
    yield "digraph module {"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="monospace", fontsize=10];'
    yield '  edge [fontname="monospace", fontsize=8];'
    for number, function in enumerate(outline.functions):
        yield from _function(function, f"f{number}_")
    if outline.omitted:
        yield f'  omitted [label="{outline.omitted} more kernels", shape=plaintext];'
    yield "}"


def _function(function: FunctionOutline, prefix: str) -> Iterator[str]:
    yield f"  subgraph cluster_{prefix} {{"
    yield f"    label={_quoted([function_title(function)])};"
    for port in (*function.arguments, *function.results):
        yield f"    {prefix}{port.id} [label={_quoted(port_lines(port))}, shape=ellipse];"
    made: dict[int, list[str]] = {}
    for edge in function.edges:
        made.setdefault(edge.source, []).append(edge.type)
    yield from _items(function.items, prefix, prefix_of(function), made, "    ")
    for edge in function.edges:
        style = ", style=dashed, constraint=false" if edge.carried else ""
        yield f"    {prefix}{edge.source} -> {prefix}{edge.target} [label={_quoted([edge.type])}{style}];"
    yield "  }"


def _items(
    items: list[Item], prefix: str, inside: str, made: dict[int, list[str]], indent: str, often: str = ""
) -> Iterator[str]:
    for item in items:
        if not isinstance(item, Repeat):
            lines = box_lines(item, inside, list(dict.fromkeys(made.get(item.id, []))))
            yield f"{indent}{prefix}{item.id} [label={_quoted([lines[0] + often, *lines[1:]])}];"
        elif len(item.items) == 1:
            yield from _items(item.items, prefix, inside, made, indent, f"{often} {times(item.count)}")
        else:
            first = next(boxes_of(item.items)).id
            yield f"{indent}subgraph cluster_{prefix}repeat{first} {{"
            yield f"{indent}  label={_quoted([times(item.count)])};"
            yield from _items(item.items, prefix, inside, made, indent + "  ")
            yield f"{indent}}}"


def _quoted(lines: list[str]) -> str:
    return '"' + "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in lines) + '"'
