"""Outlines as JSON; docs/bundle.md has the schema."""

import json
from dataclasses import asdict
from typing import Any, Final

from tapeline.outline._outline import Box, FunctionOutline, Item, Outline

SCHEMA: Final = 1


def outline_json(outline: Outline) -> str:
    """The whole outline."""
    functions = [_function(function) for function in outline.functions]
    return json.dumps({"schema": SCHEMA, "functions": functions, "omitted": outline.omitted}, indent=1) + "\n"


def _function(function: FunctionOutline) -> dict[str, Any]:
    return {
        "name": function.name,
        "kind": function.kind,
        "call_sites": function.call_sites,
        "operations": function.operations,
        "arguments": [asdict(argument) for argument in function.arguments],
        "results": [asdict(result) for result in function.results],
        "items": [_item(item) for item in function.items],
        "edges": [asdict(edge) for edge in function.edges],
    }


def _item(item: Item) -> dict[str, Any]:
    if isinstance(item, Box):
        return asdict(item)
    return {"count": item.count, "items": [_item(one) for one in item.items]}
