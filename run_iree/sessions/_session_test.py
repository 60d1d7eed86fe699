import dataclasses
import time
from pathlib import Path

import numpy as np
import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import DescriptionError, DeviceError, InputError, TensorSpec, f32, i32
from run_iree._device_testing import STEP, archive, compiled, device_params
from run_iree.devices import Device
from run_iree.sessions._session import Session

_W = np.arange(12, dtype=np.float32).reshape(4, 3)
_X = np.array([[1, 2, 3], [4, 5, 7]], np.float32)
_SPECS = {"x": TensorSpec((2, 3), f32), "c": TensorSpec((1, 5, 3), f32), "y": TensorSpec((2, 4), f32)}


@pytest.fixture(scope="module", params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def step(device: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("step")
    return compiled(STEP, device, folder), archive(folder, {"w": _W})


@pytest.fixture
def session(step: tuple[Path, Path], device: str):
    with Session(step[0], device, parameters=step[1]) as opened:
        yield opened


def _signature(alias: str | None = "cache", cache: str = "c", scalar: str = "scalar") -> Signature:
    return Signature(
        "main",
        (
            LoweredArgument("pos", TensorSpec((), i32), scalar),  # pyright: ignore[reportArgumentType]
            LoweredArgument("x", _SPECS["x"]),
            LoweredArgument("cache", _SPECS[cache], alias_result=alias, in_place=alias is not None),
        ),
        (LoweredResult("y", _SPECS["y"]), LoweredResult("cache", _SPECS["c"])),
    )


def test_a_step_writes_its_cache_row_and_uses_the_mapped_weight(session: Session) -> None:
    cache = np.random.default_rng(3).standard_normal((1, 5, 3)).astype(np.float32)
    y, new = session.function("main")(3, _X, cache)
    expected = cache.copy()
    expected[0, 3] = _X[1]
    np.testing.assert_array_equal(y.numpy(), _X @ _W.T)
    np.testing.assert_array_equal(new.numpy(), expected)
    assert (y.spec, new.shape, new.dtype) == (_SPECS["y"], (1, 5, 3), f32)


def test_steps_hand_the_cache_on(session: Session) -> None:
    cache = session.zeros(_SPECS["c"])
    for pos in range(5):
        _, cache = session.function("main")(pos, _X * (pos + 1), cache)
    np.testing.assert_array_equal(cache.numpy()[0], _X[1] * np.arange(1, 6, dtype=np.float32)[:, None])


def test_a_donated_tensor_is_dead_and_stays_in_its_place_on_a_cpu(session: Session) -> None:
    cache = session.zeros(_SPECS["c"])
    x = session.upload(_X)
    where = cache.address()
    before = session.counters.bytes_in
    _, new = session.function("main")(np.int32(0), x, cache)
    assert session.counters.bytes_in == before
    assert new.address() == where
    assert (where is None) == (session.device in ("vulkan", "cuda"))
    assert not cache.alive
    with pytest.raises(
        DeviceError, match=r"cannot read this f32\[1,5,3\]: it was donated to 'main' as argument 'input2'"
    ):
        cache.numpy()
    with pytest.raises(DeviceError, match=r"cannot pass for 'input2' of 'main' this .* donated .* use the result"):
        session.function("main")(0, x, cache)
    with pytest.raises(DeviceError, match="cannot locate this"):
        cache.address()


def test_a_recorded_hazard_is_copied_and_a_plain_argument_is_not(step: tuple[Path, Path], device: str) -> None:
    with Session(step[0], device, parameters=step[1], signatures=[_signature()]) as session:
        x = session.upload(_X)
        session.function("main")(0, x, session.zeros(_SPECS["c"]))
        assert session.counters.bytes_guarded == 0
        np.testing.assert_array_equal(x.numpy(), _X)


def test_counters_tell_what_a_call_takes_in_the_module(session: Session) -> None:
    began = time.perf_counter()
    for calls in (1, 2):
        before = session.counters.module_seconds
        session.function("main")(0, _X, np.zeros((1, 5, 3), np.float32))
        assert session.counters.module_seconds > before
        assert session.counters.calls == calls
    assert session.counters.module_seconds < time.perf_counter() - began


def test_counters_tell_what_was_copied(session: Session) -> None:
    y, _ = session.function("main")(0, _X, np.zeros((1, 5, 3), np.float32))
    y.numpy()
    counters = session.counters
    assert (counters.calls, counters.bytes_in, counters.bytes_out) == (1, 4 * (6 + 15), 4 * 8)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((0, _X), r"'main' takes 3 arguments \(input0, input1, input2\), found 2"),
        ((0, _X.T, np.zeros((1, 5, 3), np.float32)), r"'input1' is f32\[2,3\], found an array of shape \(3, 2\)"),
        ((0, _X.astype(np.float64), 0), r"'input1' is f32\[2,3\], found an array of shape \(2, 3\) and dtype float64"),
        ((0, _X, 1.5), r"'input2' is f32\[1,5,3\], found a float"),
        ((0.5, _X, 0), "'input0' is a number of dtype i32, found 0.5"),
        ((True, _X, 0), "'input0' is a number of dtype i32, found True"),
        ((2**31, _X, 0), "'input0' is a number of dtype i32, found 2147483648"),
        ((_X, _X, 0), "'input0' is a number of dtype i32, found ndarray"),
    ],
)
def test_wrong_arguments_are_refused_before_the_call(session: Session, args: tuple, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        session.function("main")(*args)
    assert session.counters.calls == session.counters.bytes_in == 0


def test_numbers_out_of_bounds_are_refused_before_the_call(step: tuple[Path, Path], device: str) -> None:
    position, x, cache = _signature().arguments
    bound = dataclasses.replace(position, bounds=(-1, 4)), x, cache
    signatures = [dataclasses.replace(_signature(), arguments=bound)]
    with Session(step[0], device, parameters=step[1], signatures=signatures) as session:
        held = session.zeros(_SPECS["c"])
        for wrong in (5, np.int32(-2)):
            message = f"'main': argument 'pos': expected -1 to 4; found {wrong}: the bundle was exported for no more"
            with pytest.raises(InputError, match=message):
                session.function("main")(wrong, _X, held)
        assert session.counters.calls == 0
        assert session.function("main")(4, _X, held)[1].numpy()[0, 4].tolist() == _X[1].tolist()


def test_a_tensor_of_another_shape_or_session_is_refused(session: Session, step: tuple[Path, Path]) -> None:
    with pytest.raises(DeviceError, match=r"'input1' is f32\[2,3\], found a tensor f32\[1,5,3\]"):
        session.function("main")(0, session.zeros(_SPECS["c"]), session.zeros(_SPECS["c"]))
    with (
        Session(step[0], session.device, parameters=step[1]) as other,
        pytest.raises(DeviceError, match="another session"),
    ):
        session.function("main")(0, other.upload(_X), session.zeros(_SPECS["c"]))


def test_an_unknown_entry_point_names_its_neighbours(session: Session) -> None:
    assert session.entry_points == ("main",)
    with pytest.raises(DeviceError, match=r"no entry point 'mian'; available: main; did you mean 'main'\?"):
        session.function("mian")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"alias": None}, r"argument by aliased result is \{\} in the description, \{1: 2\} in the module"),
        ({"scalar": "tensor"}, r"argument 'pos': type is tensor i32\[\] in the description, scalar i32\[\] in the mod"),
    ],
)
def test_a_signature_that_is_not_the_modules_is_refused(
    step: tuple[Path, Path], device: str, changed: dict[str, object], message: str
) -> None:
    signature = _signature(**changed)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DescriptionError, match=rf"entry point 'main': .*{message}.*: export again"):
        Session(step[0], device, parameters=step[1], signatures=[signature])


def test_a_described_function_that_is_not_in_the_module_is_refused(step: tuple[Path, Path], device: str) -> None:
    signature = dataclasses.replace(_signature(), name="mian")
    with pytest.raises(DescriptionError, match=r"'mian' is described, and not found in .*; available: main; did you"):
        Session(step[0], device, parameters=step[1], signatures=[signature])


def test_after_close_every_use_is_an_error(step: tuple[Path, Path], device: str) -> None:
    session = Session(step[0], device, parameters=step[1])
    function = session.function("main")
    y, cache = function(0, _X, np.zeros((1, 5, 3), np.float32))
    kept = y.numpy()
    session.close()
    session.close()
    assert session.closed
    assert not y.alive
    np.testing.assert_array_equal(kept, _X @ _W.T)
    for use in (y.numpy, y.address):
        with pytest.raises(DeviceError, match=r"session on '.*' is closed"):
            use()
    with pytest.raises(DeviceError, match="cannot call 'main': the session"):
        function(0, _X, cache)
    for use in (lambda: session.function("main"), lambda: session.upload(_X), session.__enter__):
        with pytest.raises(DeviceError, match="is closed; open a new one"):
            use()


def test_results_outlive_the_names_of_their_session(step: tuple[Path, Path], device: str) -> None:
    y, _ = Session(step[0], device, parameters=step[1]).function("main")(0, _X, np.zeros((1, 5, 3), np.float32))
    np.testing.assert_array_equal(y.numpy(), _X @ _W.T)


def test_sessions_share_an_opened_device(step: tuple[Path, Path], device: str) -> None:
    opened = Device(device)
    sessions = [Session(step[0], opened, parameters=step[1]) for _ in range(2)]
    for session in sessions:
        y, _ = session.function("main")(0, _X, np.zeros((1, 5, 3), np.float32))
        session.close()
    with Session(step[0], opened, parameters=step[1]) as third:
        y, _ = third.function("main")(0, _X, np.zeros((1, 5, 3), np.float32))
        np.testing.assert_array_equal(y.numpy(), _X @ _W.T)


def test_scalars_rank_0_and_empty_tensors_pass(device: str, tmp_path: Path) -> None:
    text = """func.func public @main(%n: i32, %z: tensor<f32>, %e: tensor<0x3xf32>) -> (tensor<f32>, tensor<0x3xf32>) {
      return %z, %e : tensor<f32>, tensor<0x3xf32>
    }"""
    with Session(compiled(text, device, tmp_path), device) as session:
        z, e = session.function("main")(7, np.float32(2.5), np.empty((0, 3), np.float32))
        assert (z.numpy().shape, z.numpy().item(), e.numpy().shape) == ((), 2.5, (0, 3))
