"""Program of one device: run by XLA on every device of a mesh, it says what the whole program says on one.

By default on two meshes, with both kinds of positions; with TAPELINE_LONG=1 in the environment on every mesh.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.extend.backend
import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]
from jaxlib.mlir import ir

import tapeline
from compile_hlo.portable import verify_text
from lang_core import Axes, InputError, MeshShape, TensorSpec, as_dtype
from run_jax import StableHloFunction
from run_jax.sessions import Partitions
from tapeline.bundle import PER_DEVICE, Bundle
from tests.mesh._xla import mesh_of


def _export(path: Path, mesh: str | None = "tp=2", **options: Any) -> Bundle:
    target = ("stablehlo-per-device",)
    sizes: dict[str, Any] = {"num_layers": 1, "sequence": 8, "max_sequence": 24}
    given: dict[str, Any] = {"target": target, "verify": "parse", **sizes, **options}
    return tapeline.export("demo", path / "bundle", mesh=mesh, **given)


class _EveryDevice:
    """Function of the program of one device, loaded onto all of a mesh."""

    def __init__(self, text: str, name: str, mesh: MeshShape) -> None:
        self._mesh = mesh_of(mesh)
        devices = tuple(self._mesh.devices.flat)
        options = jax.extend.backend.get_compile_options(
            num_replicas=len(devices), num_partitions=1, device_assignment=np.arange(len(devices)).reshape(-1, 1)
        )
        with mlir.make_ir_context():
            module = ir.Module.parse(_of_replicas(text, len(devices)))
            for function in list(module.body.operations):
                if ir.StringAttr(function.attributes["sym_name"]).value == name:
                    function.attributes["sym_name"] = ir.StringAttr.get("main")
                    signature = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
                    self.kinds = [ir.RankedTensorType(kind).shape for kind in signature.inputs]
                else:
                    function.operation.erase()
            self._loaded = devices[0].client.compile_and_load(module, _jax.DeviceList(devices), options)

    def __call__(self, arrays: list[np.ndarray], axes: list[Axes]) -> list[list[np.ndarray]]:
        """Returns each result of every device."""
        given = []
        for array, cut, kind in zip(arrays, axes, self.kinds, strict=True):
            kept = () if array.shape == tuple(kind) else cut
            sharding = Partitions(self._mesh, {"": kept}).parameter("", TensorSpec(array.shape, as_dtype(array.dtype)))
            given.append(jax.device_put(array, sharding))
        shards = self._loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [[np.asarray(part) for part in result] for result in shards]


def _of_replicas(text: str, devices: int) -> str:
    """Returns the text for XLA's replicas: it cuts a program of partitions itself, and refuses one that is cut."""
    alone = re.sub(r"channel_handle = #stablehlo.channel_handle<[^>]*>(, )?|, use_global_device_ids", "", text)
    return alone.replace("stablehlo.partition_id", "stablehlo.replica_id").replace(
        f"mhlo.num_partitions = {devices} : i32, mhlo.num_replicas = 1",
        f"mhlo.num_partitions = 1 : i32, mhlo.num_replicas = {devices}",
    )


@pytest.mark.parametrize(
    ("mesh", "rows"),
    [
        ("tp=4", {"batch": 2}),
        ("tp=2,dp=2", {"batch": 2}),
        ("tp=2", {"slots": 2}),
        ("tp=2", {"batch": 2}),
        ("dp=2", {"batch": 2}),
    ][: 5 if os.environ.get("TAPELINE_LONG") else 2],
)
def test_every_device_says_what_the_whole_program_says(tmp_path: Path, mesh: str, rows: dict[str, int]) -> None:
    bundle, devices = _export(tmp_path, mesh, **rows), MeshShape.parse(mesh)
    config, text = bundle.config, (bundle.path / PER_DEVICE).read_text()
    assert config.mesh is not None
    verify_text(bundle.path / PER_DEVICE)
    weights, rng = bundle.weights(), np.random.default_rng(3)
    assert weights is not None
    for point in config.entry_points:
        given = []
        for argument in point.arguments:
            shape = argument.spec.shape
            drawn = rng.integers(0, 8, shape) if argument.spec.dtype.is_integer else rng.standard_normal(shape)
            given.append(np.asarray(drawn, argument.spec.dtype.numpy))
        read = list(config.parameters) if point.parameters is None else list(point.parameters)
        given += [np.asarray(weights.read(path)) for path in read]
        axes = [argument.axes or () for argument in point.arguments]
        axes += [config.mesh.parameters[path] for path in read]
        expected = StableHloFunction(bundle.path / "module.vhlo", point.name)(*given)
        for result, whole, parts in zip(
            point.results, expected, _EveryDevice(text, point.name, devices)(given, axes), strict=True
        ):
            joined = _joined(parts, whole.shape, result.axes or (), devices)
            np.testing.assert_allclose(joined, whole, rtol=0, atol=1e-5 * max(1.0, np.abs(whole).max()))


def _joined(parts: list[np.ndarray], shape: tuple[int, ...], axes: Axes, mesh: MeshShape) -> np.ndarray:
    """Returns the whole of the parts of every device; devices that hold the same part have the same bits."""
    whole, parts_of = np.zeros(shape, parts[0].dtype), dict[tuple[int, ...], np.ndarray]()
    for device, part in enumerate(parts):
        place = dict(zip(mesh.names, np.unravel_index(device, list(mesh.sizes.values())), strict=True))
        where = tuple(
            0
            if axis is None
            else int(place[mesh.axis_of(axis)]) * mesh.size_of(axis) // mesh.size_of(mesh.axis_of(axis))
            for axis in axes
        )
        np.testing.assert_array_equal(part, parts_of.setdefault(where, part))
        whole[tuple(slice(i * size, (i + 1) * size) for i, size in zip(where, part.shape, strict=False))] = part
    return whole


def test_devices_along_dp_have_programs_of_their_own_sequences(tmp_path: Path) -> None:
    """Those of one group along tp exchange; nothing goes between the groups."""
    bundle = _export(tmp_path, "tp=2,dp=2", batch=2)
    text = (bundle.path / PER_DEVICE).read_text()
    assert "tensor<1x1x24x16xf32>" in text
    assert "mhlo.num_partitions = 4" in text
    assert set(re.findall(r"replica_groups = dense<(\S+ \S+ \S+)>", text)) <= {"[[0, 2], [1, 3]]"}
    assert "replica_groups = dense<[[0, 2], [1, 3]]>" in text


def test_collectives_are_those_of_the_plan_and_caches_are_parts(tmp_path: Path) -> None:
    bundle = _export(tmp_path)
    text = (bundle.path / PER_DEVICE).read_text()
    points, layers = len(bundle.config.entry_points), bundle.config.model["layers"]
    counted = Counter(re.findall(r"stablehlo\.(all_reduce|all_gather|all_to_all|collective_permute)\b", text))
    assert counted == Counter({"all_reduce": points * 2 * layers, "all_gather": points})
    assert "sdy." not in text
    assert "tensor<1x1x24x16xf32>" in text
    assert "mhlo.num_partitions = 2" in text
    assert PER_DEVICE in bundle.config.sha256


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [
        (
            None,
            {},
            r"target=stablehlo-per-device writes the program of one device of a mesh, and there is no mesh: give",
        ),
        ("tp=2", {"verify": "iree"}, "verify=iree runs the compiled module, and target=none gives none: name a target"),
    ],
)
def test_what_has_no_program_of_one_device_is_refused(
    tmp_path: Path, mesh: str | None, options: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        _export(tmp_path, mesh, **options)
