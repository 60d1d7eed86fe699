"""Ways in which IREE's runtime corrupts data or ends the process, shown to be closed."""

import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iree import runtime

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import DeviceError, TensorSpec, f32
from run_iree._device_testing import STEP, archive, compiled, device_params
from run_iree.compiler import compile_module
from run_iree.devices import Device, target_of_device
from run_iree.sessions._session import Session

_CACHE = np.arange(21, dtype=np.float32).reshape(7, 3)
_ROW = np.full((1, 3), -1, np.float32)


@pytest.fixture(params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


# Neither argument is donated; IREE nevertheless writes into the buffer that was passed for %c.
_UPDATE = """func.func public @main(%p: i32, %c: tensor<7x3xf32>, %r: tensor<1x3xf32>) -> tensor<7x3xf32> {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %pos = tensor.from_elements %p : tensor<i32>
  %u = stablehlo.dynamic_update_slice %c, %r, %pos, %z : (tensor<7x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) \
-> tensor<7x3xf32>
  return %u : tensor<7x3xf32>
}"""

_SCATTER = """func.func public @main(%p: i32, %c: tensor<7x3xf32>, %r: tensor<1x3xf32>) -> tensor<7x3xf32> {
  %at = tensor.from_elements %p : tensor<1x1xi32>
  %u = "stablehlo.scatter"(%c, %at, %r) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], \
inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%old: tensor<f32>, %new: tensor<f32>):
      stablehlo.return %new : tensor<f32>
  }) : (tensor<7x3xf32>, tensor<1x1xi32>, tensor<1x3xf32>) -> tensor<7x3xf32>
  return %u : tensor<7x3xf32>
}"""


@pytest.mark.parametrize("text", [_UPDATE, _SCATTER], ids=["dynamic_update_slice", "scatter"])
def test_an_argument_that_is_not_donated_is_never_written(device: str, text: str, tmp_path: Path) -> None:
    with Session(compiled(text, device, tmp_path), device) as session:
        cache = session.upload(_CACHE)
        array = _CACHE.copy()
        for passed in (cache, array):
            (new,) = session.function("main")(2, passed, _ROW)
            np.testing.assert_array_equal(new.numpy(), np.concatenate([_CACHE[:2], _ROW, _CACHE[3:]]))
        np.testing.assert_array_equal(cache.numpy(), _CACHE)
        np.testing.assert_array_equal(array, _CACHE)
        assert session.counters.bytes_guarded == _CACHE.nbytes  # of the handle; the array was copied in anyway
        session.function("main")(2, cache, session.upload(_ROW))
        assert session.counters.bytes_guarded == 2 * _CACHE.nbytes + _ROW.nbytes


def test_iree_does_write_an_argument_that_is_not_flagged(tmp_path: Path) -> None:
    """Shows the fault of IREE that guards exist for: if this fails, they may have become needless."""
    spec, row = TensorSpec((7, 3), f32), TensorSpec((1, 3), f32)
    with Session(compiled(_UPDATE, "local-sync", tmp_path), "local-sync") as session:
        read = session.function("main").signature.arguments[0]
    unflagged = Signature(
        "main", (read, LoweredArgument("c", spec), LoweredArgument("r", row)), (LoweredResult("u", spec),)
    )
    with Session(tmp_path / "m.local-sync.vmfb", "local-sync", signatures=[unflagged]) as session:
        cache = session.upload(_CACHE)
        session.function("main")(2, cache, _ROW)
        assert cache.numpy()[2].tolist() == [-1, -1, -1]


def _two_caches(donated: str) -> str:
    return f"""func.func public @main(%p: i32, %r: tensor<1x3xf32>, \
%k: tensor<7x3xf32> {{tf.aliasing_output = 0 : i32}}, %v: tensor<7x3xf32> {donated}) \
-> (tensor<7x3xf32>, tensor<7x3xf32>) {{
  %z = stablehlo.constant dense<0> : tensor<i32>
  %pos = tensor.from_elements %p : tensor<i32>
  %n = stablehlo.negate %r : tensor<1x3xf32>
  %a = stablehlo.dynamic_update_slice %k, %r, %pos, %z : (tensor<7x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) \
-> tensor<7x3xf32>
  %b = stablehlo.dynamic_update_slice %v, %n, %pos, %z : (tensor<7x3xf32>, tensor<1x3xf32>, tensor<i32>, tensor<i32>) \
-> tensor<7x3xf32>
  return %a, %b : tensor<7x3xf32>, tensor<7x3xf32>
}}"""


def test_caches_with_equal_contents_stay_apart_over_steps(device: str, tmp_path: Path) -> None:
    text = _two_caches("{tf.aliasing_output = 1 : i32}")
    with Session(compiled(text, device, tmp_path), device) as session:
        keys, values = session.zeros(TensorSpec((7, 3), f32)), session.zeros(TensorSpec((7, 3), f32))
        for pos in range(4):
            keys, values = session.function("main")(pos, _ROW, keys, values)
        expected = np.zeros((7, 3), np.float32)
        expected[:4] = -1
        np.testing.assert_array_equal(keys.numpy(), expected)
        np.testing.assert_array_equal(values.numpy(), -expected)


def test_results_keep_the_buffers_that_their_donors_gave(device: str, tmp_path: Path) -> None:
    """However a donor was passed, and whatever becomes of its handle."""
    text = _two_caches("{tf.aliasing_output = 1 : i32}")
    with Session(compiled(text, device, tmp_path), device) as session:
        step, kept = session.function("main"), []
        keys, values = step(0, _ROW, session.upload(_CACHE), session.upload(-_CACHE))
        expected = np.concatenate([_ROW, _CACHE[1:]])
        for pos in range(1, 7):
            donors = keys, values
            if pos % 3 == 2:  # copied in: the handle of before is not taken then
                kept.append((keys, expected.copy()))
                keys, values = step(pos, pos * _ROW, keys.numpy(), values)
            else:
                keys, values = step(pos, pos * _ROW, keys, values)
            expected[pos] = -pos
            assert not donors[1].alive
            del donors  # its death must not take the buffer along
            np.testing.assert_array_equal(keys.numpy(), expected)
            np.testing.assert_array_equal(values.numpy(), -expected)
        with pytest.raises(DeviceError, match="'input3' is passed twice and one of the arguments is donated"):
            step(0, _ROW, keys, keys)
        for handle, contents in kept:
            np.testing.assert_array_equal(handle.numpy(), contents)


def test_what_stays_in_its_place_is_not_looked_up_again(tmp_path: Path) -> None:
    text = _two_caches("{tf.aliasing_output = 1 : i32}")
    with Session(compiled(text, "local-sync", tmp_path), "local-sync") as session:
        caches = session.function("main")(0, _ROW, session.upload(_CACHE), session.upload(_CACHE))
        names = [cache.key for cache in caches]
        for pos in range(5):
            caches = session.function("main")(pos, _ROW, *caches)
            assert [cache.key for cache in caches] == names


@pytest.mark.parametrize("donated", ["", "{tf.aliasing_output = 1 : i32}"], ids=["one donated", "both donated"])
def test_one_tensor_for_two_arguments_is_refused_when_one_is_donated(device: str, donated: str, tmp_path: Path) -> None:
    with Session(compiled(_two_caches(donated), device, tmp_path), device) as session:
        cache = session.upload(_CACHE)
        with pytest.raises(
            DeviceError, match="'input3' is passed twice and one of the arguments is donated; pass a copy"
        ):
            session.function("main")(0, _ROW, cache, cache)
        np.testing.assert_array_equal(cache.numpy(), _CACHE)


_PASS = """func.func public @main(%x: tensor<7x3xf32>) -> (tensor<7x3xf32>, tensor<7x3xf32>, tensor<7x3xf32>) {
  %y = stablehlo.negate %x : tensor<7x3xf32>
  return %x, %y, %y : tensor<7x3xf32>, tensor<7x3xf32>, tensor<7x3xf32>
}"""


def test_results_share_no_buffer_with_arguments_or_each_other(device: str, tmp_path: Path) -> None:
    spec = TensorSpec((7, 3), f32)
    trusted = Signature("main", (LoweredArgument("x", spec),), tuple(LoweredResult(name, spec) for name in "xyz"))
    with Session(compiled(_PASS, device, tmp_path), device, signatures=[trusted]) as session:
        x = session.upload(_CACHE)
        tensors = (x, *session.function("main")(x))
        places = [tensor.address() for tensor in tensors if tensor.address() is not None]
        assert len(set(places)) == len(places)
        for tensor, expected in zip(tensors, (_CACHE, _CACHE, -_CACHE, -_CACHE), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), expected)
        assert session.counters.bytes_guarded == 2 * spec.nbytes


_WRONG_ALIAS = _UPDATE.replace("%r: tensor<1x3xf32>)", "%r: tensor<1x3xf32> {tf.aliasing_output = 0 : i32})")


def test_an_alias_of_another_size_is_refused_before_a_call(device: str, tmp_path: Path) -> None:
    module = compiled(_WRONG_ALIAS, device, tmp_path)
    with (
        Session(module, device) as session,
        pytest.raises(DeviceError, match=r"'input2' \(f32\[1,3\]\) aliases result 'output0' \(f32\[7,3\]\)"),
    ):
        session.function("main")


def test_files_are_replaced_under_an_open_session(device: str, tmp_path: Path) -> None:
    module = compiled(STEP, device, tmp_path)
    weights = archive(tmp_path, {"w": np.ones((4, 3), np.float32)})
    cache = np.zeros((1, 5, 3), np.float32)
    with Session(module, device, parameters=weights) as session:
        source = tmp_path / "m.mlir"
        source.write_text(STEP.replace("stablehlo.slice %x [1:2", "stablehlo.slice %x [0:1"))
        compile_module(source, module, target_of_device(device))
        archive(tmp_path, {"w": np.full((4, 3), 2, np.float32)}, "new.irpa").replace(weights)
        y, _ = session.function("main")(0, np.ones((2, 3), np.float32), cache)
        assert y.numpy()[0, 0] == 3
    with Session(module, device, parameters=weights) as session:
        y, _ = session.function("main")(0, np.ones((2, 3), np.float32), cache)
        assert y.numpy()[0, 0] == 6


def test_sessions_share_one_instance_of_the_virtual_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second instance makes calls fail that other threads run meanwhile, as while a server loads a model again."""
    module, device = compiled(_PASS, "local-task", tmp_path), Device("local-task")
    with Session(module, device):
        monkeypatch.setattr(runtime, "VmInstance", lambda: pytest.fail("a second instance"))
        with Session(module, device) as second:
            assert second.function("main")


def _with_a_module(folder: Path, holders: list[Any]) -> Device:
    """Returns a device; ``holders`` are the last to have a module that it mapped."""
    device = Device("local-task")
    holders.append(device.map_module(runtime.VmInstance(), compiled(_PASS, "local-task", folder)))
    return device


def test_a_device_goes_after_the_modules_that_its_workers_still_have(tmp_path: Path) -> None:
    """A worker needs Python's lock to release a module, and a device that goes keeps it: ``generate`` hung so."""
    holders: list[Any] = []
    device = _with_a_module(tmp_path, holders)
    worker = threading.Timer(0.2, holders.clear)
    worker.start()
    del device
    assert not holders
    worker.join()


def test_a_module_that_somebody_keeps_does_not_keep_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_iree.devices._devices.Device._RELEASE_S", 0.1)
    holders: list[Any] = []
    device = weakref.ref(_with_a_module(tmp_path, holders))
    assert device() is None
    assert len(holders) == 1


_PROGRAM = """
import os
import sys
import numpy as np
from run_iree.devices import Device
from run_iree.sessions._session import Session
vmfb, weights, device, way = sys.argv[1:]
opened = Device(device)
session = Session(vmfb, opened, parameters=weights)
function = session.function("main")
x, cache = np.ones((2, 3), np.float32), np.zeros((1, 5, 3), np.float32)
y, kept = function(0, x, cache)
if way == "delete in the wrong order":
    del opened, session, function
    assert y.numpy()[0, 0] == 3
elif way == "cycle":
    class Node: pass
    node = Node()
    node.self, node.session, node.results = node, session, (y, kept)
    del node, opened, session, function, y, kept
elif way == "exception":
    raise SystemExit(7)
elif way == "keep everything":
    sys.kept = (opened, session, function, y, kept)
elif way == "keep beyond the modules":
    os.kept = (opened, session, function, y, kept, *sys.modules.values())
"""


@pytest.mark.parametrize(
    "way", ["delete in the wrong order", "cycle", "exception", "keep everything", "keep beyond the modules"]
)
def test_the_interpreter_ends_well_whatever_is_still_open(device: str, way: str, tmp_path: Path) -> None:
    module = compiled(STEP, device, tmp_path)
    weights = archive(tmp_path, {"w": np.ones((4, 3), np.float32)})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(module), str(weights), device, way],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (7 if way == "exception" else 0, "")
