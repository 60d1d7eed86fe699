"""Entry points as functions of NumPy arrays."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import DeviceError, bf16
from run_iree._device_testing import STEP, archive, compiled, device_params
from run_iree.compiler import compile_module
from run_iree.devices import Device, target_of_device
from run_iree.sessions._host_function import KEPT_BYTES
from run_iree.sessions._session import Session


@pytest.fixture(params=device_params())
def device(request: pytest.FixtureRequest) -> str:
    return request.param


# It writes into %c, gives %r back as it is, and has one result of rank 0.
_UPDATE = """func.func public @main(%c: tensor<7x3xbf16>, %r: tensor<1x3xbf16>, %p: tensor<i32>) \
-> (tensor<7x3xbf16>, tensor<1x3xbf16>, tensor<i32>) {
  %z = stablehlo.constant dense<0> : tensor<i32>
  %u = stablehlo.dynamic_update_slice %c, %r, %p, %z : (tensor<7x3xbf16>, tensor<1x3xbf16>, tensor<i32>, tensor<i32>) \
-> tensor<7x3xbf16>
  %q = stablehlo.add %p, %p : tensor<i32>
  return %u, %r, %q : tensor<7x3xbf16>, tensor<1x3xbf16>, tensor<i32>
}"""


def test_arrays_come_out_and_stay_what_they_are(device: str, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    with Session(compiled(_UPDATE, device, tmp_path), device) as session:
        function = session.host_function("main")
        seen: list[tuple[Any, Any]] = []
        for position in (2, 5, 0):
            c = random.standard_normal((3, 7)).astype(bf16.numpy).T  # lies otherwise in memory
            r = random.standard_normal((2, 6)).astype(bf16.numpy)[1:, ::2]
            before = c.copy()
            results = function(c, r, np.array(position, np.int32))
            wanted = np.concatenate([before[:position], r, before[position + 1 :]])
            np.testing.assert_array_equal(c, before)
            assert [type(result) for result in results] == [np.ndarray] * 3
            assert (results[2].shape, results[2].dtype, int(results[2])) == ((), np.int32, 2 * position)
            seen += [(results[0], wanted), (results[1], r)]
        for got, wanted in seen:  # later calls have not touched earlier results
            assert (got.dtype, got.tobytes()) == (wanted.dtype, wanted.tobytes())
            assert got.flags.writeable
            assert got.flags.owndata
        counters = session.counters
        assert (counters.calls, counters.bytes_in, counters.bytes_out) == (3, 3 * 52, 3 * 52)


def test_wrong_arrays_are_refused_as_by_the_general_function(device: str, tmp_path: Path) -> None:
    c, r, p = np.ones((7, 3), bf16.numpy), np.ones((1, 3), bf16.numpy), np.array(1, np.int32)
    with Session(compiled(_UPDATE, device, tmp_path), device) as session:
        function = session.host_function("main")
        for _ in range(2):  # before there are buffers, and after
            with pytest.raises(DeviceError, match=r"'main' takes 3 arguments \(.*\), found 2"):
                function(c, r)
            with pytest.raises(DeviceError, match=r"'input1' is bf16\[1,3\], found an array of shape \(1, 1\)"):
                function(c, r[:, :1], p)
            with pytest.raises(DeviceError, match=r"'input0' is bf16\[7,3\], found an array .* dtype float32"):
                function(c.astype(np.float32), r, p)
            with pytest.raises(DeviceError, match=r"'input2' is i32\[\], found a str"):
                function(c, r, "1")
            np.testing.assert_array_equal(function(c, session.upload(r), p)[0], c)  # a handle will do as well
            np.testing.assert_array_equal(function(c, r, p)[0], c)
            np.testing.assert_array_equal(function(c, r, 1)[0], c)  # as a number for a tensor of one element
    with pytest.raises(DeviceError, match=r"cannot call 'main': the session on .* is closed"):
        function(c, r, p)


def test_what_is_not_plain_goes_the_general_way(device: str, tmp_path: Path) -> None:
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    step = compiled(STEP, device, tmp_path)
    x, cache = np.ones((2, 3), np.float32), np.zeros((1, 5, 3), np.float32)
    with Session(step, device, parameters=archive(tmp_path, {"w": weights})) as session:
        y, new = session.host_function("main")(3, x, cache)  # a number and a donated cache
        np.testing.assert_array_equal(y, x @ weights.T)
        assert new[0, 3].tolist() == [1, 1, 1]


def _negate(kind: str) -> str:
    return f"""func.func public @main(%x: tensor<{kind}>) -> tensor<{kind}> {{
  %y = stablehlo.negate %x : tensor<{kind}>
  return %y : tensor<{kind}>
}}"""


def test_large_and_empty_arrays(tmp_path: Path) -> None:
    for shape in ((2, KEPT_BYTES // 8 + 3), (0, 3)):
        text = _negate("x".join(map(str, shape)) + "xf32")
        with Session(compiled(text, "local-sync", tmp_path), "local-sync") as session:
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            for scale in (1, 2):
                np.testing.assert_array_equal(session.host_function("main")(scale * x)[0], -scale * x)


def test_threads_take_turns(device: str, tmp_path: Path) -> None:
    wrong: list[str] = []
    with Session(compiled(_negate("5x3xf32"), device, tmp_path), device) as session:
        function = session.host_function("main")

        def call(number: int) -> None:
            x = np.full((5, 3), number, np.float32)
            for _ in range(40):
                if not np.array_equal(function(x)[0], -x):
                    wrong.append(f"thread {number}")

        threads = [threading.Thread(target=call, args=(number,)) for number in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


_ASSERTS = """func.func public @main(%x: tensor<2xf32>, %ok: tensor<i8>) -> tensor<2xf32> {
  %value = tensor.extract %ok[] : tensor<i8>
  %one = arith.constant 1 : i8
  %good = arith.cmpi eq, %value, %one : i8
  cf.assert %good, "the flag is not set"
  %y = stablehlo.negate %x : tensor<2xf32>
  return %y : tensor<2xf32>
}"""


def _asserting(device: str, folder: Path) -> Path:
    """The module with its assertion, which optimising leaves out."""
    source, output = folder / "a.mlir", folder / "a.vmfb"
    source.write_text(_ASSERTS)
    compile_module(source, output, target_of_device(device), extra_flags=["--iree-opt-strip-assertions=false"])
    return output


def test_a_failure_of_the_device_is_told_and_leaves_it_usable(tmp_path: Path) -> None:
    x, yes, no = np.array([1, -2], np.float32), np.array(1, np.int8), np.array(0, np.int8)
    with Session(_asserting("local-sync", tmp_path), "local-sync") as session:
        function = session.host_function("main")
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"'main' of .*a\.vmfb' failed on the device: .*the flag"):
                function(x, no)
            assert function(x, yes)[0].tolist() == [-1, 2]


_LEFT_OPEN = """
import sys
import numpy as np
from run_iree.sessions._session import Session
x, no = np.ones(2, np.float32), np.array(0, np.int8)
opened = [Session(sys.argv[1], "local-task") for _ in range(3)]
functions = [session.host_function("main") for session in opened]
kept = []
for function in functions:
    try:
        function(x, no)
    except Exception as error:
        kept.append(error)  # with its traceback
    function(x, np.array(1, np.int8))
opened[0].close()
print(len(kept), "done", flush=True)
"""


def test_the_interpreter_ends_well_with_functions_and_errors_that_are_left(tmp_path: Path) -> None:
    module = _asserting("local-task", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _LEFT_OPEN, str(module)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3 done\n", "")


def test_what_devices_are_local() -> None:
    assert Device("local-sync").is_local
    assert Device("vmvx").is_local
