"""Devices to test, and modules compiled for them once per process: helpers of device tests."""

import os
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from iree import runtime

from run_iree.compiler import compile_module
from run_iree.devices import DEVICES, available, target_of_device

_SHARED: Final = {"local-task": ("local-task", "local-sync")}
# Compiled modules by text, target and name.
_MADE: Final[dict[tuple[str, str, str], bytes]] = {}


def sharing(device: str) -> tuple[str, ...]:
    """Returns the devices on which one test runs a module compiled for ``device``: those with the same target."""
    return _SHARED.get(device, (device,))


def device_params(*, shared: bool = False) -> list[object]:
    """Returns a pytest parameter per device: that of TAPELINE_DEVICE and those with its target, or all.

    Absent devices are skipped with the reason. Devices of one target run in one process and share compiled modules.

    Args:
        shared: leave out devices that ``sharing`` lists beside another one.
    """
    asked = os.environ.get("TAPELINE_DEVICE")
    beside = {other for device in DEVICES for other in sharing(device)[1:]} if shared else set[str]()
    names = [name for name in (sharing(asked) if asked else DEVICES) if name == asked or name not in beside]
    return [
        pytest.param(name, marks=() if available(name)[0] else pytest.mark.skip(reason=available(name)[1]))
        for name in names
    ]


def compiled(text: str, device: str, folder: Path, name: str = "m") -> Path:
    """Writes a module's text and compiles it for a device, once in a process; returns the .vmfb."""
    source = folder / f"{name}.mlir"
    source.write_text(text)
    output, key = folder / f"{name}.{device}.vmfb", (text, target_of_device(device), name)
    if key in _MADE:
        output.write_bytes(_MADE[key])
    else:
        compile_module(source, output, key[1])
        _MADE[key] = output.read_bytes()
    return output


def archive(folder: Path, arrays: dict[str, np.ndarray], name: str = "w.irpa") -> Path:
    """Writes arrays as an archive with IREE's own writer."""
    index = runtime.ParameterIndex()
    for key, array in arrays.items():
        runtime.parameter_index_add_numpy_ndarray(index, key, array)
    path = folder / name
    index.create_archive_file(str(path))
    return path


def chain(count: int) -> str:
    """Returns a module that adds ``count`` tensors; IREE fuses it into one op of ``count + 1`` tensors."""
    kind = "tensor<7x5xf32>"
    heads = ", ".join(f"%a{i}: {kind}" for i in range(count))
    lines = [f"    %s{i} = stablehlo.add %{'a0' if i == 1 else f's{i - 1}'}, %a{i} : {kind}" for i in range(1, count)]
    body = "\n".join([*lines, f"    return %s{count - 1} : {kind}"])
    return f"module {{\n  func.func public @main({heads}) -> {kind} {{\n{body}\n  }}\n}}\n"


# A small decode step: a weight, and a cache row that is written at a position given as a scalar.
STEP = """module @m {
  "util.global"() {sym_name = "w", sym_visibility = "private", type = tensor<4x3xf32>, \
initial_value = #flow.parameter.named<"model"::"w"> : tensor<4x3xf32>} : () -> ()
  func.func public @main(%p: i32, %x: tensor<2x3xf32>, %c: tensor<1x5x3xf32> {tf.aliasing_output = 1 : i32}) \
-> (tensor<2x4xf32>, tensor<1x5x3xf32>) {
    // layers.0
    %pos = "tensor.from_elements"(%p) : (i32) -> tensor<i32>
    %w = "util.global.load"() {global = @w} : () -> tensor<4x3xf32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<2x3xf32>, tensor<4x3xf32>) -> \
tensor<2x4xf32>
    // layers.0.cache
    %r = stablehlo.slice %x [1:2, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>
    %r1 = stablehlo.reshape %r : (tensor<1x3xf32>) -> tensor<1x1x3xf32>
    %u = stablehlo.dynamic_update_slice %c, %r1, %z, %pos, %z : (tensor<1x5x3xf32>, tensor<1x1x3xf32>, tensor<i32>, \
tensor<i32>, tensor<i32>) -> tensor<1x5x3xf32>
    return %y, %u : tensor<2x4xf32>, tensor<1x5x3xf32>
  }
}
"""
