"""Calls on held tensors against calls with handles, on every device."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import DeviceError, InputError, TensorSpec, f32, i32
from run_iree._device_testing import compiled, device_params
from run_iree.sessions._prepared import PreparedCall
from run_iree.sessions._program import Program
from run_iree.sessions._session import Session

_CACHE = TensorSpec((2, 5), f32)
# Two caches get id and factor of a step at its position; results: their sum, and how many columns are not zero.
_STEP = """func.func public @step(%id: tensor<1x1xi32>, %pos: i32, %k: tensor<2x5xf32> {tf.aliasing_output = 1 : i32}, \
%v: tensor<2x5xf32> {tf.aliasing_output = 2 : i32}, %by: tensor<2x1xf32>) \
-> (tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<1xi32>) {
  %p = "tensor.from_elements"(%pos) : (i32) -> tensor<i32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %x = stablehlo.convert %id : (tensor<1x1xi32>) -> tensor<1x1xf32>
  %two = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<1x1xf32>) -> tensor<2x1xf32>
  %row = stablehlo.multiply %two, %by : tensor<2x1xf32>
  %k1 = stablehlo.dynamic_update_slice %k, %two, %z, %p : (tensor<2x5xf32>, tensor<2x1xf32>, tensor<i32>, tensor<i32>) \
-> tensor<2x5xf32>
  %v1 = stablehlo.dynamic_update_slice %v, %row, %z, %p : (tensor<2x5xf32>, tensor<2x1xf32>, tensor<i32>, tensor<i32>) \
-> tensor<2x5xf32>
  %sum = stablehlo.add %k1, %v1 : tensor<2x5xf32>
  %flat = stablehlo.reshape %id : (tensor<1x1xi32>) -> tensor<1xi32>
  %more = stablehlo.add %flat, %flat : tensor<1xi32>
  return %sum, %k1, %v1, %more : tensor<2x5xf32>, tensor<2x5xf32>, tensor<2x5xf32>, tensor<1xi32>
}"""
_BY = np.array([[2], [-3]], np.float32)
_SIGNATURE = Signature(
    "step",
    (
        LoweredArgument("id", TensorSpec((1, 1), i32), bounds=(-9, 9)),
        LoweredArgument("pos", TensorSpec((), i32), "scalar", bounds=(0, 4)),
        LoweredArgument("k", _CACHE, alias_result="k", in_place=True),
        LoweredArgument("v", _CACHE, alias_result="v", in_place=True),
        LoweredArgument("by", TensorSpec((2, 1), f32)),
    ),
    (
        LoweredResult("sum", _CACHE),
        LoweredResult("k", _CACHE),
        LoweredResult("v", _CACHE),
        LoweredResult("more", TensorSpec((1,), i32)),
    ),
)


@pytest.fixture(scope="module", params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def module(device: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(_STEP, device, tmp_path_factory.mktemp("step"))


@pytest.fixture
def session(module: Path, device: str) -> Iterator[Session]:
    with Session(module, device, signatures=[_SIGNATURE]) as opened:
        yield opened


def _caches(ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the contents of the caches after these ids, from the first position on."""
    k = np.zeros(_CACHE.shape, np.float32)
    k[:, : len(ids)] = ids
    return k, k * _BY


def test_steps_compute_what_calls_with_handles_do_and_results_stay(session: Session) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    k, v, ids, kept = session.zeros(_CACHE), session.zeros(_CACHE), [3, -1, 0, 9, 7], []
    by = session.upload(_BY)
    for pos, number in enumerate(ids):
        # A number, an array; a tensor of the device, an array: whatever there is for an argument.
        given = number if pos % 2 else np.full((1, 1), number, np.int32)
        kept.append(step(held, given, pos, by if pos == 2 else _BY))
        _, k, v, more = session.function("step")(np.full((1, 1), number, np.int32), pos, k, v, _BY)
        assert kept[-1].number(3) == more.numpy().item() == 2 * number
        for index, (handle, expected) in enumerate(zip((k, v), _caches(ids[: pos + 1]), strict=True)):
            np.testing.assert_array_equal(held.numpy(index), expected)
            np.testing.assert_array_equal(handle.numpy(), expected)
    assert session.counters.calls == 2 * len(ids)
    for pos, results in enumerate(kept, 1):
        np.testing.assert_array_equal(results[0].numpy(), sum(_caches(ids[:pos])))
        assert results[0] is results[0]
        assert results.number(3) == results[3].numpy().item() == 2 * ids[pos - 1]


def test_the_second_call_is_a_prepared_one_where_the_host_reaches_the_memory(session: Session) -> None:
    held = session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    assert not session.updating("step").prepared
    session.updating("step", first=1)(held, 1, 0, _BY)
    assert session.updating("step").prepared == (session.device not in ("vulkan", "cuda"))


def test_what_comes_back_in_another_buffer_is_held_from_then_on(module: Path, device: str) -> None:
    arguments = list(_SIGNATURE.arguments)
    arguments[2:4] = [dataclasses.replace(argument, name=f"{argument.name}_state") for argument in arguments[2:4]]
    text = _STEP.replace(" {tf.aliasing_output = 1 : i32}", "").replace(" {tf.aliasing_output = 2 : i32}", "")
    plain = [dataclasses.replace(argument, in_place=False) for argument in arguments]
    signatures = [dataclasses.replace(_SIGNATURE, arguments=tuple(plain))]
    with Session(compiled(text, device, module.parent, "plain"), device, signatures=signatures) as session:
        held = session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
        with pytest.raises(DeviceError, match="'step' gives no result in the place of 'k_state': call it with handles"):
            session.updating("step")(held, 1, 0, _BY)
        with pytest.raises(DeviceError, match="'step' gives no result in the place of 'v_state'"):
            session.updating("step", first=2)(held, 1, 0, _BY)
        step = session.updating("step", first=1)
        for pos in range(3):
            assert step(held, pos + 1, pos, _BY).number(3) == 2 * (pos + 1)
            assert not step.prepared
        np.testing.assert_array_equal(held.numpy(1), _caches([1, 2, 3])[1])


def test_held_tensors_are_dead_when_the_device_fails(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for pos in range(2):
        step(held, 1, pos, _BY)

    def failing(*_: object) -> None:
        raise RuntimeError("iree/some.c:7: INTERNAL; out of luck;")

    monkeypatch.setattr(PreparedCall, "run", failing)
    monkeypatch.setattr(Program, "invoke", failing)
    with pytest.raises(DeviceError, match=r"'step' of .* failed on the device: INTERNAL; out of luck$"):
        step(held, 1, 2, _BY)
    for use in (lambda: step(held, 1, 2, _BY), lambda: held.numpy(0), lambda: held.replace({})):
        with pytest.raises(DeviceError, match=r"held tensors of .*: a call that had them failed: hold others"):
            use()


def test_a_step_says_what_it_copied(session: Session) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for pos in range(3):
        before = dataclasses.replace(session.counters)
        step(held, 1, pos, _BY).number(3)
        moved = session.counters.bytes_in - before.bytes_in, session.counters.bytes_out - before.bytes_out
        assert moved == (4 + 8, 4)
        assert session.counters.module_seconds > before.module_seconds
        assert session.counters.bytes_guarded == 0
    before, by = session.counters.bytes_in, session.upload(_BY)
    step(held, np.full((1, 1), 1, np.int32), 3, by)
    assert session.counters.bytes_in - before == by.spec.nbytes + 4


def test_others_take_the_place_of_held_tensors(session: Session) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for _ in range(2):
        step(held, 1, 0, _BY)
        other = session.upload(np.full(_CACHE.shape, 8, np.float32))
        held.replace({1: other})
        assert not other.alive
        step(held, 2, 1, _BY)
        np.testing.assert_array_equal(held.numpy(1), [[8, 4, 8, 8, 8], [8, -6, 8, 8, 8]])
        assert held.numpy(0)[0, :2].tolist() == [1, 2]
        with pytest.raises(DeviceError, match=r"cannot hold a tensor f32\[3\] .* as number 0: that is f32\[2,5\]"):
            held.replace({0: session.zeros(TensorSpec((3,), f32))})
        with pytest.raises(DeviceError, match=r"cannot hold this .*donated to tensors that are held"):
            held.replace({1: other})


def test_copies_stay_as_they_were_and_can_be_put_back(session: Session) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for pos in range(2):  # before calls are prepared, and after
        step(held, 7, pos, _BY)
        kept = [array.copy() for array in (held.numpy(0), held.numpy(1))]
        moved = session.counters.bytes_copied
        copies = held.copies([1, 0])
        assert session.counters.bytes_copied == moved
        step(held, 3, 4, _BY)
        for copy, array in zip(copies, reversed(kept), strict=True):
            np.testing.assert_array_equal(copy.numpy(), array)
        held.replace(dict(zip([1, 0], copies, strict=True)))
        for index, array in enumerate(kept):
            np.testing.assert_array_equal(held.numpy(index), array)
    held.drop()
    with pytest.raises(DeviceError, match=r"cannot copy held tensors of .*: a call that had them failed"):
        held.copies([0])


def test_parts_are_read_and_written_where_they_lie(session: Session) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for pos in range(2):  # before calls are prepared, and after
        step(held, 7, pos, _BY)
        before = session.counters.bytes_out, session.counters.bytes_in
        part = held.read(1, (slice(1, 2), slice(0, 3)))
        assert part.tolist() == [[-21, -21 * pos, 0]]
        held.write(0, (slice(None), slice(3, 5)), np.array([[1, 2], [3, 4]], np.float32))
        assert (session.counters.bytes_out, session.counters.bytes_in) == (before[0] + 12, before[1] + 16)
        part[:] = 5  # it is a copy
        assert held.read(1, (1, 0)) == -21
    step(held, 7, 2, _BY)
    np.testing.assert_array_equal(held.numpy(0), [[7, 7, 7, 1, 2], [7, 7, 7, 3, 4]])
    with pytest.raises(DeviceError, match=r"cannot write float32\[2\] into a part float32\[2, 1\] of held tensor 0"):
        held.write(0, (slice(None), slice(3, 4)), np.zeros(2, np.float32))
    with pytest.raises(DeviceError, match=r"cannot write float64\[2\] into a part float32\[2\]"):
        held.write(0, (slice(None), 3), np.zeros(2))
    held.drop()
    for use in (lambda: held.read(0, ()), lambda: held.write(0, (), np.zeros(_CACHE.shape, np.float32))):
        with pytest.raises(DeviceError, match=r"cannot (read|write) held tensors of .*: a call that had them failed"):
            use()


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((1, 5, _BY), InputError, "'pos': expected 0 to 4; found 5"),
        ((-10, 0, _BY), InputError, "'id': expected -9 to 9; found -10"),
        ((np.full((1, 1), 10, np.int32), 0, _BY), InputError, "'id': expected -9 to 9; found 10"),
        ((2**31, 0, _BY), DeviceError, "'id' is i32.*, found a int"),
        ((True, 0, _BY), DeviceError, "'id' is i32.*, found a bool"),
        ((1, 0.5, _BY), DeviceError, "'pos' is a number of dtype i32, found 0.5"),
        ((1, 0, _BY.T), DeviceError, r"'by' is f32\[2,1\], found an array of shape \(1, 2\)"),
        ((1, 0, 2), DeviceError, "'by' is f32.*, found a int"),
        ((1, 0), DeviceError, r"takes 3 values beside the held tensors \(id, pos, by\), found 2"),
    ],
)
def test_wrong_values_are_refused_and_nothing_is_lost(
    session: Session, values: tuple, error: type[Exception], message: str
) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    for pos in range(3):  # before the first call, and after
        with pytest.raises(error, match=message):
            step(held, *values)
        step(held, pos + 1, pos, _BY)
    np.testing.assert_array_equal(held.numpy(0), _caches([1, 2, 3])[0])


def test_what_does_not_fit_is_refused(session: Session, module: Path) -> None:
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    with Session(module, session.device, signatures=[_SIGNATURE]) as other:
        theirs = other.hold([other.zeros(_CACHE), other.zeros(_CACHE)])
        by = other.upload(_BY)
        for pos in range(2):
            with pytest.raises(DeviceError, match=r"'step' updates .* of another session: hold those"):
                step(theirs, 1, 0, _BY)
            with pytest.raises(DeviceError, match=r"'step' updates .*, found held tensors .*: hold those"):
                step(session.hold([session.zeros(_CACHE)]), 1, 0, _BY)
            with pytest.raises(DeviceError, match="a tensor of another session"):
                step(held, 1, pos, by)
            step(held, 1, pos, _BY)
        with pytest.raises(DeviceError, match="cannot hold a tensor of another session"):
            session.hold([by])
    twice = session.zeros(_CACHE)
    with pytest.raises(DeviceError, match="cannot hold a tensor twice"):
        session.hold([twice, twice])
    results = step(held, 1, 2, _BY)
    with pytest.raises(DeviceError, match=r"result 1 of a call .* is held"):
        results[1]
    with pytest.raises(DeviceError, match=r"result 0 is f32\[2,5\], and no single i32"):
        results.number(0)


def test_nothing_is_reached_after_the_session(module: Path, device: str) -> None:
    session = Session(module, device, signatures=[_SIGNATURE])
    step, held = session.updating("step"), session.hold([session.zeros(_CACHE), session.zeros(_CACHE)])
    results = [step(held, 1, pos, _BY) for pos in range(3)]
    session.close()
    for result in results:
        with pytest.raises(DeviceError, match=r"session on .* is closed"):
            result.number(3)
    with pytest.raises(DeviceError, match=r"cannot update by 'step' held tensors: the session on .* is closed"):
        step(held, 1, 3, _BY)
    with pytest.raises(DeviceError, match=r"cannot pass held tensors: the session on .* is closed"):
        held.numpy(0)
