"""Plans of a small program whose bytes and times can be worked out by hand."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from lang_core import Argument, Axes, EntryPoint, ExecutionContext, InputError, MeshShape, Parameter, Tensor, TensorSpec
from tapeline.analysis.planning import DevicePlan, Hardware, MeshLayout, plan, plan_text

_D, _F, _S = 64, 256, 100
_UP, _DOWN = Parameter((_F, _D), "bf16"), Parameter((_D, _F), "bf16")
_UP._name, _DOWN._name = "up", "down"
_HARDWARE: Final = Hardware(
    name="boards", devices=8, memory_bytes=400_000, memory_bandwidth=1e9, flops={"bf16": 1e12, "f32": 1e11},
    link_bandwidth=1e8, link_latency=1e-6, collective_latency=1e-5, sources={},
)  # fmt: skip


def step(ctx: ExecutionContext, token_ids: Tensor, cache: Tensor, x: Tensor) -> Mapping[str, Tensor]:
    """Multiplies by columns, then by rows, and writes the result into a cache."""
    del token_ids
    y = ctx.ops.linear(ctx.ops.linear(x, ctx.parameter(_UP)), ctx.parameter(_DOWN))
    start = ctx.ops.constant(0, "i32")
    return {"layers.0.key_cache": ctx.ops.dynamic_update_slice(cache, y, (start, start, start))}


def points(batch: int) -> tuple[EntryPoint, ...]:
    cache = TensorSpec((batch, _S, _D), "bf16")
    arguments = (
        Argument("token_ids", TensorSpec((batch, 1), "i32")),
        Argument("layers.0.key_cache", cache, alias_result="layers.0.key_cache"),
        Argument("x", TensorSpec((batch, 1, _D), "bf16")),
    )
    return (EntryPoint("decode", step, arguments),)


def layout(mesh: str, cut: bool = True) -> MeshLayout:
    axes: dict[str, Axes] = {"up": ("tp", None), "down": (None, "tp")} if cut else {}

    def tensors(points: tuple[EntryPoint, ...], batch: int) -> Callable[[str, TensorSpec], Axes]:
        del points, batch
        return lambda name, spec: (None,) * spec.ndim

    return MeshLayout(MeshShape.parse(mesh), axes, tensors)


def planned(mesh: str = "tp=4", batch: int = 1, **figures: Any) -> DevicePlan:
    return plan(points, batch, layout(mesh), dataclasses.replace(_HARDWARE, **figures))


def test_bytes_are_those_of_a_device() -> None:
    asked = planned().asked
    assert asked.weights == 2 * 2 * _D * _F // 4
    assert asked.packed == 0
    assert asked.caches == {"key_cache": 2 * _S * _D}
    assert asked.activations == 2 * (_F // 4 + _D)
    assert asked.total == asked.weights + 2 * _S * _D + asked.activations


def test_times_are_those_of_the_three_limits() -> None:
    (entry,) = planned().asked.entries
    assert entry.times is not None
    assert entry.tokens == 1
    assert entry.times.compute == pytest.approx(2 * 2 * _D * _F / 4 / 1e12)
    moved = 2 * (_D + _D * _F // 4 + _F // 4) + 2 * (_F // 4 + _D * _F // 4 + _D) + 2 * 2 * _D
    assert entry.times.memory == pytest.approx(moved / 1e9)
    # A ring of four: three steps of sums and three of copies, each of a quarter.
    assert entry.times.link == pytest.approx(1e-5 + 6 * 1e-6 + 2 * 3 / 4 * 2 * _D / 1e8)
    assert entry.times.total == pytest.approx(entry.times.memory + entry.times.link)
    assert entry.times.bound == "link"
    assert (
        planned(link_bandwidth=1e12, link_latency=0, collective_latency=0).asked.entries[0].as_json()["bound"]
        == "memory"
    )
    assert planned(flops={"bf16": 1e6}).asked.entries[0].as_json()["bound"] == "compute"


def test_the_largest_batch_is_the_greatest_that_fits() -> None:
    made = planned()
    assert made.largest is not None
    batch = made.largest.batch
    assert made.largest.total <= _HARDWARE.memory_bytes
    assert plan(points, batch + 1, layout("tp=4"), _HARDWARE).asked.total > _HARDWARE.memory_bytes
    assert batch == (400_000 - made.asked.weights) // (made.asked.total - made.asked.weights)


def test_what_was_asked_for_may_be_too_much_or_all_that_there_is() -> None:
    most = planned().largest
    assert most is not None
    too_many = planned(batch=most.batch * 2)
    assert too_many.fits is False
    assert too_many.largest is not None
    assert too_many.largest.batch == most.batch
    assert f"largest batch: {most.batch}\n" in plan_text(too_many.as_json())
    exact = planned(batch=most.batch)
    assert exact.fits
    assert exact.largest is exact.asked
    assert plan_text(exact.as_json()).endswith(f"largest batch: {most.batch}, as asked")
    none = planned(memory_bytes=1000)
    assert none.largest is None
    assert "it does NOT fit" in plan_text(none.as_json())
    assert plan_text(none.as_json()).endswith("largest batch: none fits")


def test_rows_of_data_parallel_devices_come_in_their_number() -> None:
    made = plan(points, 2, layout("dp=2", cut=False), _HARDWARE)
    assert made.largest is not None
    assert made.largest.batch % 2 == 0


def test_it_is_told_to_people_and_to_programs() -> None:
    made = planned()
    told = made.as_json()
    assert (told["mesh"], told["devices"], told["fits"]) == ({"tp": 4}, 4, True)
    (entry,) = told["asked"]["entry_points"]
    (row,) = entry["collectives"]
    assert row == {
        "kind": "all-reduce",
        "bytes": 2 * _D,
        "devices": 4,
        "axes": "tp",
        "path": "",
        "occurs": 1,
        "calls": 1,
    }
    assert entry["tokens_per_second"] == pytest.approx(1 / entry["seconds"]["total"])
    assert entry["sent_bytes"] == 2 * 3 * 2 * _D // 4
    text = plan_text(made.as_json())
    assert text.startswith("mesh tp=4 on boards: 4 devices\nper device, batch 1:\n")
    assert "1 x  all-reduce  128 bytes  among 4 along tp" in text
    assert "decode, 1 token" in text


def test_without_hardware_there_are_bytes_and_no_times() -> None:
    made = plan(points, 1, layout("tp=2"), None)
    assert made.fits is None
    assert "largest_batch" not in made.as_json()
    assert "seconds" not in made.as_json()["asked"]["entry_points"][0]
    assert "least time" not in plan_text(made.as_json())
    assert "decode: devices exchange nothing" in plan_text(plan(points, 1, layout("tp=1"), None).as_json())


def test_a_mesh_that_the_hardware_has_not_is_refused() -> None:
    with pytest.raises(InputError, match="mesh tp=16 has 16 devices, and boards 8: take a smaller mesh, or a hardware"):
        planned("tp=16")
    with pytest.raises(InputError, match="mesh tp=4: boards has no `link_bandwidth`, which several devices need"):
        planned(link_bandwidth=None)
