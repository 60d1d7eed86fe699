"""Dumps of sessions: traces equal fetched results bit for bit, also in loops; directions, levels, errors."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, InputError, TagSelection, TensorSpec
from run_iree import Session
from run_iree._device_testing import compiled, device_params
from runtime.dump import Dump, DumpedCall, Dumper, DumpWriter, eager_call, read_dump, tags_by_entry_point

B, T, D, ROUNDS = 2, 5, 7, 3
_ARGUMENTS = (
    Argument("x", TensorSpec((B, T, D), "f32")),
    Argument("w", TensorSpec((D, D), "f32")),
    Argument("position", TensorSpec((), "i32"), kind="scalar"),
    Argument("cache", TensorSpec((B, 9, D), "f32"), alias_result="cache"),
)


def _model(ctx: Any, x: Any, w: Any, position: Any, cache: Any, rounds: int = ROUNDS) -> dict[str, Any]:
    """A cache row written, and rounds of norm, matmul and softmax; every step of it is tagged."""
    ops = ctx.ops
    ctx.module_path = "layers.4"
    x = ctx.tag(x, "in")
    h = ctx.tag(ops.softmax(ops.linear(x, w)), "h")
    row = ops.split(h, (1, T - 1), 1)[0]
    cache = ops.dynamic_update_slice(cache, row, (0, position, 0))

    def body(i: Any, v: Any) -> tuple[Any]:
        v = ctx.tag(ops.rms_norm(ops.linear(v, w), w_row), "normed")
        return (ctx.tag(ops.add(v, ops.exp(ops.negate(ops.abs(v)))), "round"),)

    w_row = ops.reshape(ops.split(w, (1, D - 1), 0)[0], (D,))
    (y,) = ops.fori_loop(rounds, body, (h,))
    unused = ctx.tag(ops.exp(ops.add(y, 1.0)), "unused")
    del unused
    return {"y": ctx.tag(ops.cast(y, "f32"), "y"), "cache": cache}


MAIN = EntryPoint("main", _model, _ARGUMENTS)
_RNG = np.random.default_rng(7)
INPUTS = [
    _RNG.standard_normal((B, T, D), np.float32),
    _RNG.standard_normal((D, D), np.float32) / 2,
    3,
    _RNG.standard_normal((B, 9, D), np.float32),
]


@pytest.fixture(scope="module", params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


def lowered(device: str, folder: Path, point: EntryPoint, tags: Sequence[str] | None, name: str) -> tuple[Path, Any]:
    pieces: list[str] = []
    selection = None if tags is None else TagSelection(tags)
    module = lower_module([point], pieces.append, ExternalParameters(), tags=selection, block_functions=False)
    return compiled("".join(pieces), device, folder, name), [module.functions[0].signature]


@pytest.fixture(scope="module")
def debug(device: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    return lowered(device, tmp_path_factory.mktemp("debug"), MAIN, ["*"], "debug")


def dumped(debug: tuple[Path, Any], device: str, folder: Path, level: int = 2, calls: int = 1) -> tuple[Dump, Any]:
    tags = tags_by_entry_point([MAIN], ["*"])
    with (
        DumpWriter(folder / "dump", level=level, source={"context": "device"}, tags=["*"]) as writer,
        Session(debug[0], device, signatures=debug[1], dumper=Dumper(writer, tags)) as session,
    ):
        results: Any = (None, session.upload(INPUTS[3]))
        for _ in range(calls):
            results = session.function("main")(*INPUTS[:3], results[1])
        arrays = [tensor.numpy() for tensor in results]
    return read_dump(folder / "dump"), arrays


def test_order_names_iterations_and_directions(debug: tuple[Path, Any], device: str, tmp_path: Path) -> None:
    dump, _ = dumped(debug, device, tmp_path)
    rows = [(r.name, r.direction, r.when, r.iteration) for r in dump.records]
    assert rows[:4] == [
        ("x", "IN", "before", None),
        ("w", "IN", "before", None),
        ("position", "IN", "before", None),
        ("cache", "INOUT", "before", None),
    ]
    assert rows[-2:] == [("y", "OUT", "after", None), ("cache", "INOUT", "after", None)]
    tags = [(name, iteration) for name, direction, _, iteration in rows if direction == "TAG"]
    rounds = [(f"layers.4.{name}", i) for i in range(ROUNDS) for name in ("normed", "round")]
    ends = [(f"layers.4.{name}", 0) for name in ("unused", "y")]
    assert sorted(tags) == sorted([("layers.4.in", 0), ("layers.4.h", 0), *rounds, *ends])
    assert [tag for tag in tags if tag in rounds] == rounds
    by_name = {record.name: record for record in dump.records}
    assert by_name["layers.4.round"].op == "add"
    assert "tests/sessions/dump_test.py:" in (by_name["layers.4.h"].line or "")


def test_the_eager_context_dumps_the_same_tensors(debug: tuple[Path, Any], device: str, tmp_path: Path) -> None:
    dump, _ = dumped(debug, device, tmp_path)
    with DumpWriter(tmp_path / "eager", level=2, source={"context": "eager"}, tags=["*"]) as writer:
        inputs = {argument.name: np.asarray(value) for argument, value in zip(_ARGUMENTS, INPUTS, strict=True)}
        inputs["position"] = inputs["position"].astype(np.int32)
        eager_call(Dumper(writer, tags_by_entry_point([MAIN], ["*"])), MAIN, None, inputs)
    eager = read_dump(tmp_path / "eager")
    by_key = {record.key: record for record in dump.records}
    assert set(by_key) == {record.key for record in eager.records}
    for record in eager.records:
        other = by_key[record.key]
        facts = ("direction", "module_path", "op", "line", "dtype", "shape", "bytes", "nan", "inf")
        assert [getattr(record, fact) for fact in facts] == [getattr(other, fact) for fact in facts]
        np.testing.assert_allclose(eager.load(record), dump.load(other), rtol=1e-4, atol=1e-5)


def test_before_and_after_are_what_the_call_took_and_gave(debug: tuple[Path, Any], device: str, tmp_path: Path) -> None:
    dump, (y, cache) = dumped(debug, device, tmp_path, calls=2)
    arrays = {record.key: dump.load(record) for record in dump.records}
    for step in range(2):
        for name, value in zip(("x", "w", "position"), INPUTS, strict=False):
            np.testing.assert_array_equal(arrays[step, "main", name, "before", None], value)
    np.testing.assert_array_equal(arrays[0, "main", "cache", "before", None], INPUTS[3])
    np.testing.assert_array_equal(arrays[1, "main", "cache", "before", None], arrays[0, "main", "cache", "after", None])
    np.testing.assert_array_equal(arrays[1, "main", "cache", "after", None], cache)
    np.testing.assert_array_equal(arrays[1, "main", "y", "after", None], y)
    assert not np.array_equal(cache, INPUTS[3])


def test_a_trace_is_what_a_fetch_of_the_same_module_gives(debug: tuple[Path, Any], device: str, tmp_path: Path) -> None:
    dump, (y, cache) = dumped(debug, device, tmp_path)
    arrays = {record.key: dump.load(record) for record in dump.records}
    np.testing.assert_array_equal(arrays[0, "main", "layers.4.y", "during", 0], y)
    np.testing.assert_array_equal(arrays[0, "main", "layers.4.round", "during", ROUNDS - 1], y)
    np.testing.assert_array_equal(arrays[0, "main", "layers.4.h", "during", 0][:, 0], cache[:, 3])
    np.testing.assert_array_equal(arrays[0, "main", "layers.4.in", "during", 0], INPUTS[0])


def fetching(name: str, rounds: int) -> EntryPoint:
    """The model without tags and with fewer rounds, which also returns what one of the tags shows."""

    def fn(ctx: Any, *inputs: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {}

        def keep(x: Any, tag: str, detail: bool = False) -> Any:
            return shown.setdefault("fetched", x) if tag == name else x

        ctx.tag = keep
        return {"y": _model(ctx, *inputs, rounds=rounds)["y"], **shown}

    # Without the cache: IREE 3.13 cannot compile its update before a loop ("circular dependency"), traces or not.
    return EntryPoint("main", fn, tuple(dataclasses.replace(argument, alias_result=None) for argument in _ARGUMENTS))


@pytest.mark.parametrize(("name", "rounds"), [("h", 1), ("unused", ROUNDS)])
def test_a_trace_is_what_another_module_without_traces_fetches(
    debug: tuple[Path, Any], device: str, tmp_path: Path, name: str, rounds: int
) -> None:
    module, signatures = lowered(device, tmp_path, fetching(name, rounds), None, "plain")
    with Session(module, device, signatures=signatures) as session:
        y, fetched = [tensor.numpy() for tensor in session.function("main")(*INPUTS)]
    dump, _ = dumped(debug, device, tmp_path)
    arrays = {record.key: dump.load(record) for record in dump.records}
    np.testing.assert_array_equal(arrays[0, "main", f"layers.4.{name}", "during", 0], fetched)
    np.testing.assert_array_equal(arrays[0, "main", "layers.4.round", "during", rounds - 1], y)


@pytest.mark.parametrize(
    ("level", "directions", "with_payload"),
    [(1, {"TAG"}, {"TAG"}), (2, {"IN", "OUT", "INOUT", "TAG"}, {"IN", "OUT", "INOUT", "TAG"}),
     (3, {"IN", "OUT", "INOUT", "TAG"}, {"TAG"})],
)  # fmt: skip
def test_levels(
    debug: tuple[Path, Any], device: str, tmp_path: Path, level: int, directions: set[str], with_payload: set[str]
) -> None:
    dump, _ = dumped(debug, device, tmp_path, level)
    assert {record.direction for record in dump.records} == directions
    assert {record.direction for record in dump.records if record.file} == with_payload
    assert dump.level == level


def test_without_a_dumper_a_debug_module_computes_the_same(
    debug: tuple[Path, Any], device: str, tmp_path: Path
) -> None:
    _, (y, cache) = dumped(debug, device, tmp_path)
    with Session(debug[0], device, signatures=debug[1]) as session:
        for result, wanted in zip(session.function("main")(*INPUTS), (y, cache), strict=True):
            np.testing.assert_array_equal(result.numpy(), wanted)


@pytest.mark.parametrize("where", ["argument", "tag", "result"])
def test_a_dump_that_fails_ends_the_call_and_the_session_lives_on(
    debug: tuple[Path, Any], device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(self: Any, name: str, *args: Any, **kwargs: Any) -> None:
        try:
            raise OSError("no space")
        except OSError:
            raise InputError(f"{name}: the disk is full") from None

    monkeypatch.setattr(DumpedCall, where, full)
    tags = tags_by_entry_point([MAIN], ["*"])
    with DumpWriter(tmp_path / "dump", level=2, source={}) as writer:
        with Session(debug[0], device, signatures=debug[1], dumper=Dumper(writer, tags)) as session:
            cache = session.upload(INPUTS[3])
            with pytest.raises(InputError, match="the disk is full") as raised:
                session.function("main")(*INPUTS[:3], cache)
            assert cache.alive == (where == "argument")
            monkeypatch.undo()
            session.function("main")(*INPUTS)
        frames = [frame.name for frame in raised.traceback]
        assert "full" not in frames
        assert raised.value.__context__ is not None
        assert raised.value.__context__.__traceback__ is None
    kept = [record.when for record in read_dump(tmp_path / "dump").records]
    assert "after" in kept


def test_a_module_whose_description_is_of_another(debug: tuple[Path, Any], device: str, tmp_path: Path) -> None:
    for tags, message in (
        ({}, r"traced 'layers\.4\.in' \(280 bytes\), and the bundle's description has no such tag: export again"),
        (
            {"main": [tag for tag in tags_by_entry_point([MAIN], ["*"])["main"] if tag.name.endswith("h")]},
            r"traced 'layers\.4\.in' .* no such tag",
        ),
    ):
        with (
            DumpWriter(tmp_path / str(len(tags)), level=1, source={}) as writer,
            Session(debug[0], device, signatures=debug[1], dumper=Dumper(writer, tags)) as session,
            pytest.raises(InputError, match=message),
        ):
            session.function("main")(*INPUTS)
