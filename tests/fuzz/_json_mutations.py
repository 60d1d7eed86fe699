"""Changes of the structure of JSON documents."""

import json
import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 8, 32, 127, 128, 255, 256, 1024, 2**16, 2**31 - 1, 2**31, 2**32, 2**53),
    *(2**63 - 1, 2**63, 2**64, -(2**31), -(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-30, 1e30, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), "", " ", "a", "0", "1", "None", "null", "\0", "\ud800", "é"),
    *("a" * 300, "../x", "/etc/passwd", "%s", "{0}", ".*", "(a+)+$", "a/b", "a.b", "<s>", "float32", "int8", "self"),
    *([], {}, [[]], [{}], {"": None}, [0], [1, 2], ["a"], [None], {"a": 1}, [[1], [2]], {"type": "a"}),
)  # fmt: skip


def mutate_json(data: bytes, draw: Random, values: Sequence[Any] = (), keys: Sequence[str] = ()) -> bytes:
    """Changes one to four values of a JSON document; data that is none stays as it is.

    Args:
        data: the document.
        draw: source of the choices.
        values: further values to choose from.
        keys: further keys of objects.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(draw.choice((1, 1, 1, 2, 3, 4))):
        document = _changed(document, draw, values, keys)
    try:
        return json.dumps(document, ensure_ascii=draw.random() < 0.8).encode("utf-8", "surrogatepass")
    except RecursionError:
        return data


def nodes_of(document: Any) -> list[tuple[Any, Any]]:
    """Returns (container, key) of each value in a document, but the document itself."""
    nodes: list[tuple[Any, Any]] = []
    pending = [document]
    while pending:
        container = pending.pop()
        places = container.keys() if isinstance(container, dict) else range(len(container))
        for place in places:
            nodes.append((container, place))
            if isinstance(container[place], dict | list):
                pending.append(container[place])
    return nodes


def _changed(document: Any, draw: Random, values: Sequence[Any], keys: Sequence[str]) -> Any:
    if not isinstance(document, dict | list):
        return _value(draw, values)
    nodes = nodes_of(document)
    if not nodes:
        return _grown(document, draw, values, keys)
    container, place = draw.choice(nodes)
    value = container[place]
    kind = draw.randrange(10)
    if kind < 3:
        container[place] = _value(draw, values)
    elif kind == 3:
        del container[place]
    elif kind == 4:
        other, at = draw.choice(nodes)
        container[place] = _copy(other[at]) if _has(other, at) else None
    elif kind == 5 and isinstance(container, list) and len(container) < 64:
        container.insert(place, _copy(value))
    elif kind == 6 and isinstance(value, dict | list):
        _grown(value, draw, values, keys)
    elif kind == 7:
        container[place] = [value] if draw.random() < 0.5 else {draw.choice((*keys, "a")): value}
    elif kind == 8 and isinstance(container, dict):
        container[draw.choice((*keys, *(node[1] for node in nodes if isinstance(node[1], str))))] = container.pop(place)
    else:
        container[place] = _near(value, draw)
    return document


def _has(container: Any, place: Any) -> bool:
    return place in container if isinstance(container, dict) else place < len(container)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value)) if isinstance(value, dict | list) else value


def _grown(container: Any, draw: Random, values: Sequence[Any], keys: Sequence[str]) -> Any:
    if isinstance(container, list):
        container.append(_value(draw, values))
    else:
        container[draw.choice((*keys, "", "a"))] = _value(draw, values)
    return container


def _near(value: Any, draw: Random) -> Any:
    """Returns a value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        if abs(value) > 2**128:
            return value // 2**64
        return draw.choice(
            (value + 1, value - 1, -value, 2 * value, value // 2, value * 10**9, float(value), str(value))
        )
    if isinstance(value, float):
        return draw.choice((-value, value * 1e9, value / 1e9)) if math.isfinite(value) else 0.0
    if isinstance(value, str):
        place = draw.randrange(len(value) + 1)
        return draw.choice(
            (value[:place], value[place:], value[:place] + draw.choice("a0{}%\\\"' \n.*<|>") + value[place:], value * 2)
        )
    if isinstance(value, list):
        return draw.choice((value[::-1], value * 2 if len(value) < 64 else value[:1], value[1:]))
    if isinstance(value, Mapping):
        return [*value.values()]
    return value


def _value(draw: Random, values: Sequence[Any]) -> Any:
    if values and draw.random() < 0.5:
        return _copy(draw.choice(values))
    return _copy(draw.choice(_VALUES))
