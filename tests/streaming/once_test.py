"""A lowering records once: what a model does anew at each recording cannot differ from what is written."""

import gc
import itertools
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compile_dag import Value
from compile_hlo import LoweredModule, lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint
from tests.streaming import _programs
from tests.streaming._reference import lower_graphs

# Programs that are drawn; TAPELINE_LONG=1 in the environment asks for more.
_COUNT: Final = 10_000 if os.environ.get("TAPELINE_LONG") else 60
SPEC = _programs.SPEC


def lowered(point: EntryPoint, streaming: bool, **options: Any) -> tuple[str, LoweredModule]:
    pieces: list[str] = []
    module = lower_module([point], pieces.append, ExternalParameters(), streaming=streaming, **options)
    return "".join(pieces), module


def check_same(fresh: Any, **options: Any) -> str:
    """Checks that a program of this kind has one text, each lowering being given one that has not run yet."""
    streamed, module = lowered(fresh(), True, **options)
    assert (streamed, module) == lowered(fresh(), False, **options)
    whole, known = lower_graphs([fresh()], ExternalParameters(), **options)
    known.functions[0].largest_stretch = module.functions[0].largest_stretch
    assert streamed == whole
    assert module == known
    return streamed


def _alternating() -> EntryPoint:
    calls = itertools.count()

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        op = (ctx.ops.exp, ctx.ops.negate)[next(calls) % 2]
        return {"y": ctx.ops.fori_loop(3, lambda i, v: (op(v),), (x,))[0]}

    return EntryPoint("main", fn, (Argument("x", SPEC),))


def _counting() -> EntryPoint:
    calls = itertools.count(1)

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        return {"y": ctx.ops.mul(x, float(next(calls)))}

    return EntryPoint("main", fn, (Argument("x", SPEC),))


def _masking() -> EntryPoint:
    rng = np.random.default_rng(7)

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        with ctx.block("layers.0"):
            mask = ctx.ops.constant(rng.random(SPEC.shape) < 0.5)
            y = ctx.ops.select(mask, x, ctx.ops.exp(x))
        return {"y": y}

    return EntryPoint("main", fn, (Argument("x", SPEC),))


@pytest.mark.parametrize(
    ("fresh", "first"), [(_alternating, "exponential"), (_counting, "dense<1.0>"), (_masking, "true")]
)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_model_that_differs_at_each_call_is_called_once(fresh: Any, first: str, streaming: bool) -> None:
    """A loop body that alternates, a Python counter and a random mask: the text is that of the first call."""
    point, calls = fresh(), []

    def fn(*arguments: Any) -> Any:
        calls.append(None)
        return point.fn(*arguments)

    text, _ = lowered(EntryPoint("main", fn, point.arguments), streaming)
    assert len(calls) == 1
    assert first in text
    assert text == check_same(fresh)


def test_what_is_equal_in_python_and_another_program_is_no_equal_stretch() -> None:
    """Blocks that differ in a zero's sign or in a bit of a NaN are told apart."""
    values = [0.0, -0.0, np.float32(np.nan), np.array(0x7FC00001, np.uint32).view(np.float32)[()], 1.0]

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        for index, value in enumerate(values):
            with ctx.block(f"layers.{index}"):
                x = ctx.ops.mul(ctx.ops.exp(x), ctx.ops.constant(np.float32(value)))
        return {"y": x}

    text = check_same(lambda: EntryPoint("main", fn, (Argument("x", SPEC),)))
    for spelled in ("dense<0.0>", "dense<-0.0>", "0x7FC00000", "0x7FC00001", "dense<1.0>"):
        assert spelled in text
    assert text.count("func.func private") == len(values)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "bool", "u8", "f64"])
def test_long_literals_are_told_apart_by_their_bytes(dtype: str) -> None:
    """Blocks with equal tables are one function, a table with one other element is another; not all are contiguous."""
    tables = [np.arange(120).reshape(6, 20).T[:, :5] % 2 for _ in range(4)]
    tables[2][7, 3] ^= 1

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        for index, table in enumerate(tables):
            with ctx.block(f"layers.{index}"):
                weight = ctx.ops.constant(table.astype(bool) if dtype == "bool" else table, dtype)
                x = ctx.ops.add(ctx.ops.mul(x, ctx.ops.sum(ctx.ops.cast(weight, "f32"))), 1.0)
        return {"y": x}

    text = check_same(lambda: EntryPoint("main", fn, (Argument("x", SPEC),)))
    assert text.count("func.func private") == 2
    assert text.count(" call @") == 4


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Lets everything that has a size be exceeded: windows, templates in memory, journals in memory."""
    patch.setattr("compile_dag._recorder.WINDOW", 6)
    patch.setattr("compile_hlo.streaming._templates.IN_MEMORY", 1)
    patch.setattr("compile_hlo.streaming._journal.IN_MEMORY", 1)


_DRAWN: Final = ("literal", "counter", "while", "cond", "sum", "split", "add", "exp", "update", "tagged_while", "call")
_STEPS = st.lists(
    st.tuples(st.sampled_from(_DRAWN), st.tuples(st.integers(0, 999), st.integers(0, 999)), st.just([])),
    max_size=24,
)


def drawn_program(steps: Sequence[Any], outputs: Sequence[int], seed: int, blocks: bool) -> EntryPoint:
    """A program with random literals, which differ each time it is called; with blocks, three of its steps each."""
    rng = np.random.default_rng(seed)
    calls = itertools.count(seed % 5)

    def fn(ctx: Any, *inputs: Any) -> dict[str, Any]:
        values, ops = list(inputs), ctx.ops
        count = next(calls)
        for place, step in enumerate(steps):
            kind, (a, b), _ = step
            x, y = values[a % len(values)], values[b % len(values)]
            if kind == "literal":
                shape = [(), (3,), SPEC.shape][a % 3]
                values.append(ops.mul(x, ops.constant(rng.integers(-2, 3, shape).astype(np.float32))))
            elif kind == "counter":
                values.append(
                    ops.fori_loop(1 + count % 3, lambda i, v, y=y, n=count: (ops.add(v, ops.mul(y, n)),), (x,))[0]
                )
            elif kind == "call":
                values.append(ops.silu(ops.softmax(x, axis=1)))
            elif blocks and a % 3 == 0:
                with ctx.block(f"layers.{place}"):
                    _programs.run(ctx, [step], values)
            else:
                _programs.run(ctx, [step], values)
        return {f"out{i}": values[number % len(values)] for i, number in enumerate(outputs)}

    return EntryPoint("main", fn, tuple(Argument(name, SPEC) for name in _programs.INPUTS))


@pytest.mark.parametrize("sizes", ["small", "usual"])
@settings(max_examples=_COUNT // 2, deadline=None)
@given(_STEPS, st.lists(st.integers(0, 999), min_size=1, max_size=3), st.integers(0, 99), st.booleans(), st.booleans())
def test_random_programs_with_literals_of_their_own(
    sizes: str, steps: Any, outputs: list[int], seed: int, blocks: bool, block_functions: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if sizes == "small":
            shrink(patch)
        program = lambda: drawn_program(steps, outputs, seed, blocks)  # noqa: E731 - each call has a state of its own
        check_same(program, block_functions=block_functions, locations=seed % 2 == 1)


@pytest.mark.parametrize("block", ["", "layers.0"])
def test_a_flat_function_and_a_giant_block_are_cut_into_windows(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        total = x
        with ctx.block(block) if block else nullcontext():
            for index in range(40):
                x = ctx.ops.exp(ctx.ops.mul(x, float(index)))
                total = ctx.ops.add(total, x)
        return {"y": total}

    point = EntryPoint("main", fn, (Argument("x", SPEC),))
    text = check_same(lambda: point)
    assert (text.count("func.func private") > 5) == bool(block)
    largest = lowered(point, True)[1].functions[0].largest_stretch
    assert (largest.block, largest.nodes) == (block, 6)
    assert "once_test.py" in largest.line


@pytest.mark.parametrize("block", ["", "layers.0"])
def test_nothing_of_a_flat_function_lives_on_after_its_window(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    alive: list[int] = []

    def fn(ctx: Any, x: Any) -> dict[str, Any]:
        with ctx.block(block) if block else nullcontext():
            for _ in range(40):
                for _ in range(6):
                    x = ctx.ops.sin(x)
                alive.append(sum(isinstance(entry, Value) for entry in gc.get_objects()))
        return {"y": x}

    gc.collect()
    lowered(EntryPoint("main", fn, (Argument("x", SPEC),)), True)
    assert max(alive[3:]) <= min(alive[3:]) + 6
