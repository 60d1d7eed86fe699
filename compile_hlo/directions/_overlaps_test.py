"""Updates that overlap get the longer form, in blocks, loops and branches; others keep the text that they had."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from compile_hlo.quirks import FAULTS, XLA_PARTITIONED, overrides_of
from lang_core import Argument, EntryPoint, Module, Parameter, TensorSpec

_X: Final = TensorSpec((1, 8, 4), "f32")
_PLACE: Final = TensorSpec((), "i32")
_LONGER: Final = "stablehlo.optimization_barrier"
Body = Callable[..., Any]


def _text(body: Body, **options: Any) -> str:
    arguments = (Argument("x", _X), Argument("y", _X), Argument("at", _PLACE), Argument("to", _PLACE))
    text: list[str] = []
    fn = lambda ctx, *tensors: {"r": body(ctx, *tensors)}  # noqa: E731
    lower_module([EntryPoint("main", fn, arguments)], text.append, ExternalParameters(), **options)
    return "".join(text)


def _part(c: Any, x: Any) -> Any:
    return c.ops.slice_axis(x, 1, 0, 4)


def _shifted(c: Any, x: Any, by: Any, at: Any, to: Any = None) -> Any:
    return c.ops.dynamic_update_slice(x, _part(c, by), [0, at, 0])


def _put(c: Any, x: Any, by: Any, at: Any, to: Any = None) -> Any:
    return c.ops.put(x, c.ops.constant([[3, 2, 1, 0]], "i32"), c.ops.negate(_part(c, by)), 1)


def _carried(c: Any, x: Any, y: Any, at: Any, to: Any) -> Any:
    """From the second round on, w is a part of what v is."""
    return c.ops.fori_loop(
        3, lambda i, v, w: (c.ops.dynamic_update_slice(v, w, [0, i, 0]), _part(c, v)), (x, _part(c, y))
    )[0]


def _row(c: Any, x: Any, rows: int, at: Any, to: Any) -> Any:
    return c.ops.dynamic_update_slice(x, c.ops.dynamic_slice(x, [0, at, 0], (1, rows, 4)), [0, to, 0])


def _in_blocks(c: Any, x: Any, y: Any, at: Any, to: Any) -> Any:
    with c.block("layers.0"):
        part = _part(c, x)
    with c.block("steps.0"):
        return c.ops.dynamic_update_slice(x, part, [0, at, 0])


class _Table(Module):
    def __init__(self) -> None:
        self.weight = Parameter((1, 8, 4))


_TABLE: Final = _Table()


def _table(c: Any) -> Any:
    return c.ops.constant(np.arange(32, dtype=np.float32).reshape(1, 8, 4))


def _weight(c: Any) -> Any:
    return c.parameter(_TABLE.weight)


def _across(c: Any, read: Body, at: Any) -> Any:
    with c.block("layers.0"):
        part = _part(c, read(c))
    with c.block("steps.0"):
        return c.ops.dynamic_update_slice(read(c), part, [0, at, 0])


OVERLAPPING: Final[dict[str, Body]] = {
    "of itself": lambda c, x, y, at, to: _shifted(c, x, x, at),
    "put": lambda c, x, y, at, to: _put(c, x, x, at),
    "computed": lambda c, x, y, at, to: _shifted(c, c.ops.add(x, y), c.ops.mul(x, 2.0), at),
    "an update": lambda c, x, y, at, to: _shifted(c, _shifted(c, x, y, 1), x, at),
    "by an update": lambda c, x, y, at, to: _shifted(c, x, _shifted(c, x, y, 1), at),
    "reshaped": lambda c, x, y, at, to: _shifted(c, x, c.ops.reshape(c.ops.reshape(x, (32,)), (1, 8, 4)), at),
    "in a loop": lambda c, x, y, at, to: c.ops.fori_loop(2, lambda i, v: (_shifted(c, v, v, i),), (x,))[0],
    "carried": _carried,
    "captured": lambda c, x, y, at, to: c.ops.fori_loop(2, lambda i, v: (_shifted(c, v, x, i),), (x,))[0],
    "in a branch": lambda c, x, y, at, to: c.ops.cond(
        c.ops.less(at, 2), lambda: (_shifted(c, x, x, at),), lambda: (y,)
    )[0],
    "of a branch": lambda c, x, y, at, to: _shifted(
        c, c.ops.cond(c.ops.less(at, 2), lambda: (x,), lambda: (y,))[0], y, at
    ),
    "across blocks": _in_blocks,
    "a row of the same place": lambda c, x, y, at, to: _row(c, x, 1, at, at),
    "a row of a computed place": lambda c, x, y, at, to: _row(c, x, 1, at, c.ops.add(to, 1)),
    "two rows": lambda c, x, y, at, to: _row(c, x, 2, at, to),
    "a row of a sum": lambda c, x, y, at, to: _row(c, c.ops.add(x, y), 1, at, to),
}


OVERLAPPING.update(
    {
        "a constant": lambda c, x, y, at, to: _shifted(c, _table(c), _table(c), at),
        "an update of a constant": lambda c, x, y, at, to: (lambda z: _shifted(c, z, z, at))(
            _shifted(c, _table(c), x, 1)
        ),
        "a moved constant": lambda c, x, y, at, to: _shifted(c, c.ops.reverse(_table(c), (1,)), _table(c), at),
        "a weight": lambda c, x, y, at, to: _shifted(c, _weight(c), c.ops.mul(_weight(c), 2.0), at),
        "an update of a weight": lambda c, x, y, at, to: _put(c, _shifted(c, _weight(c), x, 1), _weight(c), at),
        "a constant of another block": lambda c, x, y, at, to: _across(c, _table, at),
        "a weight of another block": lambda c, x, y, at, to: _across(c, _weight, at),
        "a carried constant": lambda c, x, y, at, to: c.ops.fori_loop(
            2, lambda i, v: (_shifted(c, v, _table(c), i),), (_table(c),)
        )[0],
    }
)


def _layers(c: Any, x: Any, y: Any, at: Any, to: Any) -> Any:
    """Two layers, each with a cache of its own, of which the second one's entries depend on the first cache."""
    first = _shifted(c, x, c.ops.broadcast(c.ops.cast(at, "f32"), (1, 8, 4)), at)
    return _shifted(c, y, first, at)


APART: Final[dict[str, Body]] = {
    "of another": _shifted,
    "put": _put,
    "layers": _layers,
    "by a product": lambda c, x, y, at, to: c.ops.dynamic_update_slice(
        x, c.ops.dot_general(c.ops.ones((1, 4, 8), "f32"), x, ((2,), (1,)), ((0,), (0,))), [0, at, 0]
    ),
    "in a loop": lambda c, x, y, at, to: c.ops.fori_loop(2, lambda i, v: (_shifted(c, v, y, i),), (x,))[0],
    "row": lambda c, x, y, at, to: _row(c, x, 1, at, to),
    "of a sum with a weight": lambda c, x, y, at, to: _shifted(
        c, c.ops.add(x, _weight(c)), c.ops.mul(y, _weight(c)), at
    ),
    "of a weight by another": lambda c, x, y, at, to: _shifted(c, _weight(c), c.ops.mul(y, 2.0), at),
    "of a constant": lambda c, x, y, at, to: _shifted(c, _table(c), x, at),
    "of zeros": lambda c, x, y, at, to: _shifted(c, c.ops.zeros((1, 8, 4), "f32"), x, at),
}


@pytest.mark.parametrize("name", OVERLAPPING)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_update_of_what_it_is_computed_from_gets_the_longer_form(name: str, streaming: bool) -> None:
    assert _LONGER in _text(OVERLAPPING[name], streaming=streaming)


def _rows_written(c: Any, x: Any, by: Any) -> Any:
    """Writes rows as models do: through a view as a matrix."""
    rows, new = c.ops.reshape(x, (8, 4)), c.ops.reshape(_part(c, by), (4, 4))
    view, lines = c.ops.reshape(rows, (1, 8, 4)), c.ops.reshape(new, (1, 4, 4))
    return c.ops.reshape(c.ops.put(view, c.ops.constant([[3, 2, 1, 0]], "i32"), lines, 1), (8, 4))


@pytest.mark.parametrize("body", [lambda c, x, by: _put(c, x, by, None), _rows_written], ids=["put", "rows"])
def test_forms_for_meshes_are_guarded_alike(body: Body) -> None:
    others = {"put_target": lambda plain, e, x: plain(e, x)}
    plain = replace(XLA_PARTITIONED, functions={**XLA_PARTITIONED.functions, **others})
    for other, overlaps in (("x", True), ("y", False)):
        texts = [
            _text(lambda c, x, y, at, to, of=other: body(c, x, x if of == "x" else y), overrides=overrides)
            for overrides in (XLA_PARTITIONED, plain)
        ]
        assert (_LONGER in texts[0]) == overlaps
        assert (texts[0] == texts[1]) != overlaps


@pytest.mark.parametrize("name", APART)
def test_other_updates_keep_their_text(name: str) -> None:
    others = overrides_of(fault for fault in FAULTS if fault.name not in ("update_of_itself", "update_beside_reshape"))
    assert _text(APART[name]) == _text(APART[name], overrides=others)


def test_blocks_that_are_alike_share_a_function_where_they_overlap_alike() -> None:
    def several(c: Any, x: Any, y: Any, at: Any, to: Any) -> Any:
        parts = [_part(c, x), _part(c, y), _part(c, x)]
        for number, part in enumerate(parts):
            with c.block(f"layers.{number}"):
                x = c.ops.dynamic_update_slice(x, part, [0, at, 0])
        return x

    text = _text(several, streaming=True)
    assert text.count("func.func private") == 2
    assert text == _text(several, streaming=False)


def test_blocks_that_update_weights_share_a_function() -> None:
    """Each layer's weight is another one, and one root stands for all."""

    def several(c: Any, x: Any, y: Any, at: Any, to: Any) -> Any:
        for number in range(3):
            with c.block(f"layers.{number}"):
                x = c.ops.add(x, _shifted(c, _weight(c), c.ops.add(x, _weight(c)), at))
        return x

    text = _text(several, streaming=True)
    assert text.count("func.func private") == 1
    assert _LONGER in text
    assert text == _text(several, streaming=False)
