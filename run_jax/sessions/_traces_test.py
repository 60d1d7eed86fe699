"""Traces as results: in order, in loops and branches of any number of rounds, with caches that stay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.directions import Signature
from compile_hlo.emit import ExternalParameters, portable_text
from lang_core import Argument, DeviceError, EntryPoint, InputError, TagSelection, TensorSpec
from run_jax.sessions import Session

_SPEC = TensorSpec((2, 3), "f32")
_X = np.arange(6, dtype=np.float32).reshape(2, 3)


class _Recorder:
    """Observer that keeps all that it is told."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.shown: list[tuple[str, np.ndarray[Any, Any]]] = []
        self.closed = False

    def called(self, signature: Signature, arrays: Sequence[Any]) -> "_Recorder":
        if self.refuses:
            raise InputError("the disk is full")
        self.shown += [(argument.name, array) for argument, array in zip(signature.arguments, arrays, strict=True)]
        return self

    def traced(self, key: str, arrays: Sequence[Any]) -> None:
        self.shown += [(key, array) for array in arrays]

    def returned(self, arrays: Sequence[Any]) -> None:
        self.shown += [("result", array) for array in arrays]

    def close(self) -> None:
        self.closed = True


def _opened(fn: Any, folder: Path, observer: _Recorder, *arguments: Argument) -> Session:
    pieces: list[str] = []
    tags, point = TagSelection(["*"]), EntryPoint("main", fn, arguments or (Argument("x", _SPEC),))
    lowered = lower_module([point], pieces.append, ExternalParameters(), tags=tags, block_functions=False)
    (folder / "module.mlir").write_text("".join(pieces))
    text = "".join(portable_text(folder / "module.mlir", {}, {"main": ()}))
    signatures = [lowered.functions[0].signature]
    return Session(folder / "module.mlir", signatures=signatures, observer=observer, traced_text=text)


def _nested(ctx: Any, x: Any) -> dict[str, Any]:
    """Two rounds of three, each with a branch, and a tag on each level."""
    ops = ctx.ops

    def inner(i: Any, v: Any) -> tuple[Any]:
        return (ctx.tag(ops.add(v, 1.0), "inner"),)

    def outer(i: Any, v: Any) -> tuple[Any]:
        (v,) = ops.fori_loop(3, inner, (v,))
        (v,) = ops.cond(
            ops.equal(i, 0), lambda: (ctx.tag(ops.negate(v), "first"),), lambda: (ctx.tag(ops.mul(v, 2.0), "later"),)
        )
        return (ctx.tag(ops.add(v, 0.5), "outer"),)

    before = ctx.tag(ops.mul(x, 3.0), "before")
    (y,) = ops.fori_loop(2, outer, (before,))
    return {"y": ctx.tag(ops.add(y, 0.25), "after")}


def test_each_round_of_nested_loops_and_each_taken_branch_is_shown(tmp_path: Path) -> None:
    recorder = _Recorder()
    with _opened(_nested, tmp_path, recorder) as session:
        (y,) = session.function("main")(_X)
        result = y.numpy()
    first, value = [], 3 * _X
    inner: list[Any] = []
    outer: list[Any] = []
    for number in range(2):
        for _ in range(3):
            value = value + 1
            inner.append(value)
        value = -value if number == 0 else value * 2
        first.append(value)
        value = value + 0.5
        outer.append(value)
    names = [name for name, _ in recorder.shown]
    assert names[:2] == ["x", "before"]
    assert names[-2:] == ["after", "result"]
    expected = {"inner": inner, "first": first[:1], "later": first[1:], "outer": outer, "after": [value + 0.25]}
    for name, values in expected.items():
        np.testing.assert_array_equal([array for key, array in recorder.shown if key == name], values)
    np.testing.assert_array_equal(result, value + 0.25)
    assert recorder.closed


def _appending(ctx: Any, x: Any, cache: Any) -> dict[str, Any]:
    grown = ctx.tag(ctx.ops.add(cache, x), "grown")
    return {"cache": grown}


def test_held_tensors_are_updated_and_shown(tmp_path: Path) -> None:
    arguments = (Argument("x", _SPEC), Argument("cache", _SPEC, alias_result="cache"))
    recorder = _Recorder()
    with _opened(_appending, tmp_path, recorder, *arguments) as session:
        append = session.updating("main", 0)
        held = session.hold([session.zeros(_SPEC)])
        for rounds in (1, 2):
            append(held, _X)
            np.testing.assert_array_equal(held.numpy(0), rounds * _X)
    caches = [array for name, array in recorder.shown if name == "cache"]
    np.testing.assert_array_equal(caches, [0 * _X, _X])
    shown = [array for name, array in recorder.shown if name == "grown"]
    np.testing.assert_array_equal(shown, [_X, 2 * _X])


def test_a_call_that_the_observer_refuses_leaves_its_arguments(tmp_path: Path) -> None:
    arguments = (Argument("x", _SPEC), Argument("cache", _SPEC, alias_result="cache"))
    recorder = _Recorder(refuses=True)
    with _opened(_appending, tmp_path, recorder, *arguments) as session:
        cache = session.zeros(_SPEC)
        with pytest.raises(InputError, match="the disk is full"):
            session.function("main")(_X, cache)
        assert cache.alive
        recorder.refuses = False
        session.function("main")(_X, cache)
        with pytest.raises(DeviceError, match="it was donated to 'main' as argument 'cache'"):
            cache.numpy()


def test_a_trace_in_the_condition_of_a_loop_is_refused(tmp_path: Path) -> None:
    def looped(ctx: Any, x: Any) -> dict[str, Any]:
        ops = ctx.ops

        def goes_on(i: Any, v: Any) -> Any:
            return ops.less(ctx.tag(ops.add(i, 1), "number"), 3)

        _, y = ops.while_loop(goes_on, lambda i, v: (ops.add(i, 1), ops.mul(v, 2.0)), (ctx.constant(np.int32(0)), x))
        return {"y": y}

    with (
        _opened(looped, tmp_path, _Recorder()) as session,
        pytest.raises(InputError, match="'number' is in the condition of a loop, where engine=jax shows no tensor"),
    ):
        session.function("main")(_X)
