"""Sessions on JAX: calls, donated handles, held tensors, what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compile_hlo.directions import LoweredArgument, Signature
from lang_core import (
    CheckpointError,
    DescriptionError,
    DeviceError,
    InputError,
    MappingWeights,
    TensorSpec,
    VerificationError,
)
from run_jax.sessions import PLATFORMS, Session
from run_jax.sessions._module_testing import APPEND, CACHE, PEEK, TEXT, WEIGHTS, artifact_of, session_of
from run_jax.sessions._partitions import Partitions

_ROW = np.array([[1, 2, 3]], np.float32)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return session_of(tmp_path)


def _cache() -> np.ndarray:
    return np.zeros(CACHE.shape, np.float32)


def test_a_call_takes_arrays_and_gives_handles(session: Session) -> None:
    total, cache, number = session.function("append")(_ROW, 2, np.ones((4, 3), np.float32))
    wanted = np.ones((4, 3), np.float32)
    wanted[2] = [12, 24, 36]
    np.testing.assert_array_equal(cache.numpy(), wanted)
    assert (float(total.numpy()), number.numpy().tolist(), cache.spec, cache.alive) == (81.0, [2], CACHE, True)
    rows = np.array([[1, 0, 0], [0, 0, 1]], np.float32)
    (dot,) = session.function("peek")(cache, rows)
    np.testing.assert_array_equal(dot.numpy(), rows @ wanted.T)
    assert cache.alive
    assert session.counters.calls == 2
    assert session.counters.bytes_out == 4 + 4 + 48 + 32


def test_a_parameter_that_nothing_uses_is_not_read(session: Session) -> None:
    assert session.parameter_bytes == 0
    session.function("append")(_ROW, 0, _cache())
    assert session.parameter_bytes == WEIGHTS["w"].nbytes
    session.function("peek")(_cache(), np.ones((2, 3), np.float32))
    assert session.parameter_bytes == WEIGHTS["w"].nbytes


def test_a_donated_handle_is_dead(session: Session) -> None:
    before = session.upload(np.ones((4, 3), np.float32))
    append = session.function("append")
    _, after, _ = append(_ROW, 0, before)
    assert (before.alive, after.alive) == (False, True)
    with pytest.raises(
        DeviceError, match=r"cannot read this .*: it was donated to 'append' as argument 'cache'; use the result"
    ):
        before.numpy()
    with pytest.raises(DeviceError, match=r"cannot pass for 'cache' of 'append' this .* donated to 'append'"):
        append(_ROW, 0, before)
    with pytest.raises(DeviceError, match="cannot hold this"):
        session.hold([before])


def test_donation_keeps_addresses(session: Session) -> None:
    _, cache, _ = session.function("append")(_ROW, 0, session.zeros(CACHE))
    first = cache.addresses()
    for position in range(4):
        _, cache, _ = session.function("append")(_ROW, position, cache)
        assert cache.addresses() == first


def test_an_upload_shares_no_memory_with_the_array(session: Session) -> None:
    array = np.ones((4, 3), np.float32)
    tensor = session.upload(array)
    array[:] = 7
    np.testing.assert_array_equal(tensor.numpy(), 1)
    tensor.numpy()[:] = 9
    np.testing.assert_array_equal(tensor.numpy(), 1)


def test_an_upload_is_a_copy_and_over_when_the_call_is(session: Session) -> None:
    """Arrays that lie at multiples of 64 bytes, which JAX would take as they are, and others."""
    memory = np.zeros((3 << 18) + 32, np.float32)
    start = -memory.ctypes.data % 64 // 4
    for number in range(1, 9):
        array = memory[start + number % 2 :][: 3 << 18].reshape(-1, 3)
        array[:] = number
        tensor = session.upload(array)
        array[:] = -1
        np.testing.assert_array_equal(tensor.numpy(), number)


def test_held_tensors_are_updated_in_their_place(session: Session) -> None:
    append = session.updating("append", 1)
    held = session.hold([session.zeros(CACHE)])
    results = append(held, _ROW, 1)
    first = held.addresses(0)
    assert (results.number(2), float(results[0].numpy())) == (1, 72.0)
    np.testing.assert_array_equal(held.numpy(0)[1], [12, 24, 36])
    held.numpy(0)[:] = 5  # a copy
    append(held, 2 * _ROW, 3)
    np.testing.assert_array_equal(held.read(0, (3,)), [14, 28, 42])
    assert held.addresses(0) == first
    with pytest.raises(DeviceError, match=r"result 1 of a call on .* is held: ask the held tensors"):
        results[1]
    with pytest.raises(DeviceError, match=r"result 0 is f32\[\], and no single i32"):
        results.number(0)


def test_held_tensors_are_read_written_copied_and_replaced(session: Session) -> None:
    held = session.hold([session.upload(np.arange(12, dtype=np.float32).reshape(4, 3))])
    part = (slice(1, 3), slice(None, 2))
    np.testing.assert_array_equal(held.read(0, part), [[3, 4], [6, 7]])
    held.write(0, part, np.array([[-1, -2], [-3, -4]], np.float32))
    held.write(0, (3,), np.array([7, 8, 9], np.float32))
    wanted = np.array([[0, 1, 2], [-1, -2, 5], [-3, -4, 8], [7, 8, 9]], np.float32)
    np.testing.assert_array_equal(held.numpy(0), wanted)
    (copy,) = held.copies([0])
    session.updating("append")(held, _ROW, 0)
    np.testing.assert_array_equal(copy.numpy(), wanted)
    held.replace({0: copy})
    np.testing.assert_array_equal(held.numpy(0), wanted)
    assert not copy.alive
    with pytest.raises(DeviceError, match=r"cannot write float32\[3\] into a part float32\[2, 2\] of held tensor 0"):
        held.write(0, part, np.array([1, 2, 3], np.float32))
    with pytest.raises(DeviceError, match=r"cannot hold a tensor i32\[2\] .* as number 0: that is f32\[4,3\]"):
        held.replace({0: session.upload(np.array([1, 2], np.int32))})


def test_values_that_do_not_fit_are_refused_and_leave_the_cache(session: Session) -> None:
    append, cache = session.function("append"), session.zeros(CACHE)
    with pytest.raises(InputError, match=r"argument 'position': expected 0 to 3; found 4"):
        append(_ROW, 4, cache)
    with pytest.raises(DeviceError, match=r"argument 'row' is f32\[1,3\], found an array of shape \(3,\)"):
        append(_ROW[0], 0, cache)
    with pytest.raises(DeviceError, match=r"'append' takes 3 arguments \(row, position, cache\), found 2"):
        append(_ROW, 0)
    held = session.hold([cache])
    with pytest.raises(InputError, match="found 9"):
        session.updating("append", 1)(held, _ROW, 9)
    with pytest.raises(
        DeviceError, match=r"'append' takes 2 values beside the held tensors \(row, position\), found 1"
    ):
        session.updating("append", 1)(held, _ROW)
    with pytest.raises(DeviceError, match=r"'peek' updates \[\], found held tensors"):
        session.updating("peek")(held, _ROW)
    np.testing.assert_array_equal(held.numpy(0), 0)


def test_tensors_of_another_session_are_refused(tmp_path: Path, session: Session) -> None:
    (tmp_path / "other").mkdir()
    other = session_of(tmp_path / "other")
    with pytest.raises(DeviceError, match=r"a tensor of another session"):
        session.function("append")(_ROW, 0, other.zeros(CACHE))
    with pytest.raises(DeviceError, match=r"cannot hold a tensor of another session"):
        session.hold([other.zeros(CACHE)])
    tensor = session.zeros(CACHE)
    with pytest.raises(DeviceError, match="cannot hold a tensor twice"):
        session.hold([tensor, tensor])
    with pytest.raises(DeviceError, match=r"'append' updates .* of another session"):
        session.updating("append", 1)(other.hold([other.zeros(CACHE)]), _ROW, 0)


def test_a_closed_session_refuses_everything(session: Session) -> None:
    tensor, held = session.zeros(CACHE), session.hold([session.zeros(CACHE)])
    append, update = session.function("append"), session.updating("append", 1)
    results = update(held, _ROW, 0)
    session.close()
    session.close()
    assert (session.closed, tensor.alive) == (True, False)
    for use in (
        lambda: append(_ROW, 0, tensor),
        lambda: update(held, _ROW, 0),
        lambda: session.function("append"),
        lambda: session.upload(_ROW),
        lambda: session.zeros(CACHE),
        lambda: held.numpy(0),
        lambda: results[0],
        tensor.numpy,
    ):
        with pytest.raises(DeviceError, match="closed"):
            use()


def test_an_unknown_entry_point_is_refused(session: Session) -> None:
    assert session.entry_points == ("append", "peek")
    assert session.device in PLATFORMS
    assert (session.target, session.module.name) == (f"xla-{session.device}", "module.vhlo")
    with pytest.raises(DeviceError, match=r"has no entry point 'apend'; available: append, peek; did you mean"):
        session.function("apend")


def test_a_file_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.vhlo': file not found; export writes it"):
        Session(tmp_path / "none.vhlo", signatures=())
    path = artifact_of("module {}", tmp_path / "module.vhlo")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(VerificationError, match=r"module\.vhlo: truncated, or not a portable artifact"):
        Session(path, signatures=())


def test_products_of_f32_with_fewer_bits_are_refused_where_a_device_has_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = artifact_of(TEXT.replace(", precision = [HIGHEST, HIGHEST]", ""), tmp_path / "old.vhlo")
    options: Any = {"signatures": (PEEK,), "weights": MappingWeights(WEIGHTS), "parameters": list(WEIGHTS)}
    values = np.ones((4, 3), np.float32), np.ones((2, 3), np.float32)
    (dot,) = Session(old, **options).function("peek")(*values)
    np.testing.assert_array_equal(dot.numpy(), np.full((2, 4), 3))
    monkeypatch.setattr(Partitions, "platform", "cuda")
    session_of(tmp_path).function("peek")(*values)
    with pytest.raises(VerificationError, match=r"old\.vhlo': 'peek' has products of f32 .* cuda .*: export again"):
        Session(old, **options).function("peek")(*values)


def test_a_description_of_another_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match=r"'gone' is described, and not found in .*available: append, peek"):
        session_of(tmp_path, signatures=[Signature("gone", (), ())])
    other = LoweredArgument("cache", TensorSpec((4, 4), "f32"))
    wrong = Signature("peek", (other, PEEK.arguments[1]), PEEK.results)
    with pytest.raises(DescriptionError, match=r"entry point 'peek': .*the two do not belong together"):
        session_of(tmp_path, signatures=[wrong]).function("peek")(np.ones((4, 4), np.float32), np.ones((2, 3), "f4"))
    weights = MappingWeights({**WEIGHTS, "w": np.ones(2, np.float32)})
    with pytest.raises(DescriptionError, match=r"parameter 'w' is f32\[3\] in .*, f32\[2\] in the archive"):
        session_of(tmp_path, weights=weights).function("append")(_ROW, 0, np.zeros((4, 3), np.float32))
    with pytest.raises(CheckpointError, match=r"parameter 'w' is needed, and there are no weights"):
        session_of(tmp_path, weights=None).function("append")(_ROW, 0, np.zeros((4, 3), np.float32))


def test_what_xla_refuses_names_entry_point_and_file(tmp_path: Path) -> None:
    text = """module @m {
  func.func public @odd(%x: tensor<3xf32>) -> tensor<3xf32> {
    %y = stablehlo.custom_call @nobody_has_this(%x) : (tensor<3xf32>) -> tensor<3xf32>
    return %y : tensor<3xf32>
  }
}
"""
    spec = TensorSpec((3,), "f32")
    signature = Signature("odd", (LoweredArgument("x", spec),), (APPEND.results[0].__class__("y", spec),))
    session = Session(artifact_of(text, tmp_path / "odd.vhlo"), signatures=[signature])
    with pytest.raises(DeviceError, match=r"odd\.vhlo.*'odd'|'odd' of .*odd\.vhlo"):
        session.function("odd")(np.ones(3, np.float32))
