"""Counts of small programs that can be worked out by hand."""

from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from lang_core import ENCODINGS, Argument, Axes, EntryPoint, ExecutionContext, MeshShape, Parameter, Tensor, TensorSpec
from tapeline.analysis.counting import CountedWork, count_work

_F32 = 4


def counted(
    fn: Callable[..., Mapping[str, Tensor]],
    arguments: Mapping[str, TensorSpec],
    axes: Mapping[str, Axes] | None = None,
    mesh: str = "tp=2",
    donated: Mapping[str, str] | None = None,
) -> CountedWork:
    """Counts a program; axes are of arguments, results and parameters by name."""
    given, kept = axes or {}, donated or {}
    point = EntryPoint(
        "main", fn, tuple(Argument(name, spec, alias_result=kept.get(name)) for name, spec in arguments.items())
    )

    def axes_of(name: str, spec: TensorSpec) -> Axes:
        return given.get(name, (None,) * spec.ndim)

    return count_work(point, MeshShape.parse(mesh), axes_of, axes_of)


def exchanged(work: CountedWork) -> Counter[tuple[str, int]]:
    """Returns how often tensors of each size are exchanged."""
    counts: Counter[tuple[str, int]] = Counter()
    for row, count in work.work.collectives.items():
        counts[row.kind, row.bytes] += count
    return counts


def spec(*shape: int, dtype: str = "f32") -> TensorSpec:
    return TensorSpec(shape, dtype)


def pair(ctx: ExecutionContext, x: Tensor, up: Tensor, down: Tensor) -> Mapping[str, Tensor]:
    """Multiplies by columns, then by rows."""
    return {"y": ctx.ops.linear(ctx.ops.relu(ctx.ops.linear(x, up)), down)}


_PAIR = {"x": spec(3, 8), "up": spec(12, 8), "down": spec(8, 12)}
_CUT: dict[str, Axes] = {"up": ("tp", None), "down": (None, "tp")}


def test_one_device_does_all_the_work_and_exchanges_nothing() -> None:
    work = counted(pair, _PAIR, mesh="tp=1").work
    assert work.flops == {"f32": 2 * 2 * 3 * 8 * 12 + 3 * 12}
    assert work.memory_bytes == _F32 * (3 * 8 + 12 * 8 + 3 * 12 + 3 * 12 + 8 * 12 + 3 * 8)
    assert not work.collectives


@pytest.mark.parametrize("devices", [2, 4])
def test_columns_then_rows_ask_for_one_sum(devices: int) -> None:
    whole, part = counted(pair, _PAIR, mesh="tp=1").work, counted(pair, _PAIR, _CUT, f"tp={devices}").work
    assert part.flops["f32"] * devices == whole.flops["f32"]
    ((row, count),) = part.collectives.items()
    assert (row.kind, row.bytes, row.devices, row.axes, count) == ("all-reduce", _F32 * 3 * 8, devices, "tp", 1)


def test_a_result_that_is_asked_for_whole_is_gathered() -> None:
    def columns(ctx: ExecutionContext, x: Tensor, up: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.linear(x, up)}

    arguments = {name: _PAIR[name] for name in ("x", "up")}
    assert exchanged(counted(columns, arguments, _CUT)) == {("all-gather", _F32 * 3 * 12): 1}
    assert not exchanged(counted(columns, arguments, {**_CUT, "y": (None, "tp")}))


@pytest.mark.parametrize(("groups", "gathered"), [((2, 2, 3), 0), ((4, 3), 0), ((3, 4), 1)])
def test_heads_keep_their_cut_where_it_divides_them(groups: tuple[int, ...], gathered: int) -> None:
    """Four devices cut two times two heads in both numbers; three heads they cannot."""

    def heads(ctx: ExecutionContext, x: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.sum(ctx.ops.exp(ctx.ops.reshape(x, (5, *groups))), tuple(range(1, len(groups) + 1)))}

    work = exchanged(counted(heads, {"x": spec(5, 12)}, {"x": (None, "tp")}, "tp=4"))
    assert {kind: n for (kind, _), n in work.items()} == ({"all-gather": 1} if gathered else {"all-reduce": 1})


def test_the_larger_operand_decides_and_the_smaller_moves() -> None:
    def rows(ctx: ExecutionContext, x: Tensor, weight: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.linear(x, weight)}

    axes: dict[str, Axes] = {"x": ("tp", None), "weight": (None, "tp"), "y": (None, None)}
    work = counted(rows, {"x": spec(2, 8), "weight": spec(16, 8)}, axes)
    assert exchanged(work) == {("all-to-all", _F32 * 2 * 8 // 2): 1, ("all-reduce", _F32 * 2 * 16): 1}


def test_the_greatest_of_a_cut_vocabulary_is_found_by_value_and_place() -> None:
    def greatest(ctx: ExecutionContext, x: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.argmax(x, 1)}

    assert exchanged(counted(greatest, {"x": spec(3, 8, dtype="bf16")}, {"x": (None, "tp")})) == {
        ("all-reduce", 3 * 2): 1,
        ("all-reduce", 3 * 4): 1,
    }


def test_rows_of_a_cut_table_are_summed() -> None:
    def rows(ctx: ExecutionContext, table: Tensor, ids: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.embedding(table, ids)}

    arguments = {"table": spec(10, 6), "ids": spec(2, 3, dtype="i32")}
    assert exchanged(counted(rows, arguments, {"table": ("tp", None)})) == {("all-reduce", _F32 * 2 * 3 * 6): 1}
    assert counted(rows, arguments).work.memory_bytes == 2 * _F32 * 2 * 3 * 6  # not the table


def test_what_no_result_needs_is_not_counted() -> None:
    def dead(ctx: ExecutionContext, x: Tensor, up: Tensor, down: Tensor) -> Mapping[str, Tensor]:
        pair(ctx, x, up, down)
        return {"y": ctx.ops.exp(x)}

    work = counted(dead, _PAIR, _CUT)
    assert work.work.flops == {"f32": 3 * 8}
    assert not exchanged(work)


def test_rounds_of_a_loop_are_counted_and_its_exchanges_listed_once() -> None:
    def loop(ctx: ExecutionContext, x: Tensor, up: Tensor, down: Tensor) -> Mapping[str, Tensor]:
        def body(i: Tensor, x: Tensor) -> tuple[Tensor]:
            del i
            return (pair(ctx, x, up, down)["y"],)

        return {"y": ctx.ops.fori_loop(7, body, (x,))[0]}

    once, often = counted(pair, _PAIR, _CUT).work, counted(loop, _PAIR, _CUT).work
    assert often.flops["f32"] == 7 * once.flops["f32"]
    assert list(often.collectives.values()) == [1]
    assert list(often.calls.values()) == [7]


def test_what_a_loop_reads_from_around_it_is_gathered_once() -> None:
    def chosen(ctx: ExecutionContext, x: Tensor, stacked: Tensor) -> Mapping[str, Tensor]:
        def body(i: Tensor, x: Tensor) -> tuple[Tensor]:
            weight = ctx.ops.reshape(ctx.ops.dynamic_slice(stacked, (i, 0, 0), (1, 8, 8)), (8, 8))
            return (ctx.ops.linear(x, weight),)

        return {"y": ctx.ops.fori_loop(4, body, (x,))[0]}

    work = counted(chosen, {"x": spec(3, 8), "stacked": spec(4, 8, 8)}, {"stacked": ("ep", None, None)}, "ep=2").work
    ((row, calls),) = work.calls.items()
    assert (row.kind, row.bytes, calls) == ("all-gather", _F32 * 4 * 8 * 8, 1)
    assert work.flops["f32"] == 4 * 2 * 3 * 8 * 8


def test_a_result_that_is_used_in_parts_and_wanted_whole_is_gathered() -> None:
    """Heads of keys are fewer than devices: the cache is whole, and queries of two heads each read a part of it."""

    def attend(ctx: ExecutionContext, cache: Tensor, q: Tensor, k: Tensor, bias: Tensor) -> Mapping[str, Tensor]:
        start = (0, 0, 0, 0)
        cache = ctx.ops.dynamic_update_slice(cache, k, start)
        return {"y": ctx.ops.cached_attention(q, cache, cache, bias, 1.0), "cache": cache}

    arguments = {"cache": spec(1, 2, 5, 6), "q": spec(1, 2, 4, 1, 6), "k": spec(1, 2, 1, 6), "bias": spec(1, 1, 5)}
    axes: dict[str, Axes] = {"q": (None, "tp", None, None, None), "y": (None, "tp", None, None, None)}
    assert exchanged(counted(attend, arguments, axes)) == {("all-gather", _F32 * 2 * 5 * 6): 1}


def test_a_cache_is_updated_in_place_and_takes_no_activation() -> None:
    def update(ctx: ExecutionContext, cache: Tensor, x: Tensor, at: Tensor) -> Mapping[str, Tensor]:
        return {"cache": ctx.ops.dynamic_update_slice(cache, x, (at, 0))}

    arguments = {"cache": spec(100, 6), "x": spec(2, 6), "at": spec(dtype="i32")}
    work = counted(update, arguments, {"cache": (None, "tp")}, donated={"cache": "cache"}).work
    assert work.activation_bytes == 0
    assert work.memory_bytes == 2 * _F32 * 2 * 6 // 2


def test_packed_weights_are_read_as_they_lie() -> None:
    def product(ctx: ExecutionContext, x: Tensor, weight: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.packed_linear(x, weight, ENCODINGS["q8_0"])}

    weight = ENCODINGS["q8_0"].packed(spec(10, 128))
    whole = counted(product, {"x": spec(3, 128), "weight": weight}, mesh="tp=1").work
    assert whole.flops == {"f32": 2 * 3 * 128 * 10}
    assert whole.memory_bytes == weight.nbytes + _F32 * (3 * 128 + 3 * 10)
    part = counted(product, {"x": spec(3, 128), "weight": weight}, {"weight": (None, "tp")})
    assert exchanged(part) == {("all-reduce", _F32 * 3 * 10): 1}
    assert part.work.flops == {"f32": 3 * 128 * 10}


def test_parameters_are_named_and_equal_layers_counted_as_often_as_they_are() -> None:
    layers = [(Parameter((12, 8)), Parameter((8, 12))) for _ in range(5)]
    for number, (up, down) in enumerate(layers):
        up._name, down._name = f"layers.{number}.up", f"layers.{number}.down"

    def model(ctx: ExecutionContext, x: Tensor) -> Mapping[str, Tensor]:
        for number, (up, down) in enumerate(layers):
            with ctx.block(f"layers.{number}"):
                x = pair(ctx, x, ctx.parameter(up), ctx.parameter(down))["y"]
        return {"y": x}

    axes: dict[str, Axes] = {
        name: _CUT[name.rpartition(".")[2]] for up, down in layers for name in (up.path, down.path)
    }
    work = counted(model, {"x": spec(3, 8)}, axes)
    once = counted(pair, _PAIR, _CUT).work
    assert list(work.parameters) == list(axes)
    assert work.work.flops["f32"] == 5 * once.flops["f32"]
    assert exchanged(work) == {("all-reduce", _F32 * 3 * 8): 5}
    assert work.work.activation_bytes == once.activation_bytes


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_a_convolution_multiplies_each_tap(groups: int) -> None:
    def convolve(ctx: ExecutionContext, x: Tensor, kernel: Tensor) -> Mapping[str, Tensor]:
        return {"y": ctx.ops.conv(x, kernel, groups=groups)}

    work = counted(convolve, {"x": spec(2, 9, 6), "kernel": spec(3, 6 // groups, 12)}, mesh="tp=1").work
    positions = 2 * (9 - 3 + 1)
    assert work.flops == {"f32": 2 * positions * 12 * 3 * (6 // groups)}
