"""Table of axes of a bundle: what is written is read; what does not fit its tensors is refused."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import DescriptionError, InputError, MeshShape, TensorSpec
from tapeline.bundle import KernelConfig, MeshTable, table_on

SIGNATURE = Signature(
    "main",
    (
        LoweredArgument("x", TensorSpec((4, 6), "f32"), axes=("dp", None)),
        LoweredArgument("n", TensorSpec((), "i32"), "scalar"),
    ),
    (LoweredResult("y", TensorSpec((4, 8), "f32"), ("dp", "tp")),),
)
TABLE = MeshTable(MeshShape.parse("tp=2,dp=2"), {"w": ("tp", None)})
PARAMETERS = {"w": {"dtype": "f32", "shape": [8, 6]}}


def config() -> KernelConfig:
    return KernelConfig([SIGNATURE], parameters=PARAMETERS, mesh=TABLE)


def edited(path: Path, edit: Callable[[dict[str, Any]], object]) -> Path:
    """Writes the description with a change, without the seals that would refuse it first."""
    fields = json.loads(config().text())
    del fields["seals"]
    edit(fields)
    path.write_text(json.dumps(fields))
    return path


def test_the_table_survives_the_file(tmp_path: Path) -> None:
    path = tmp_path / "kernel_config.json"
    config().write(path)
    read = KernelConfig.read(path)
    assert read.mesh == TABLE
    assert [argument.axes for argument in read.entry_points[0].arguments] == [("dp", None), None]
    assert read.entry_points[0].results[0].axes == ("dp", "tp")
    assert json.loads(path.read_text())["mesh"] == {"axes": {"tp": 2, "dp": 2}, "parameters": {"w": ["tp", None]}}


def test_a_description_without_a_mesh_has_no_word_of_it(tmp_path: Path) -> None:
    whole = Signature("main", (LoweredArgument("x", TensorSpec((4,), "f32")),), ())
    path = tmp_path / "kernel_config.json"
    KernelConfig([whole]).write(path)
    assert '"mesh"' not in path.read_text()
    assert '"axes"' not in path.read_text()
    assert KernelConfig.read(path).mesh is None


def _sized(fields: dict[str, Any], **axes: int) -> None:
    fields["mesh"]["axes"] = axes


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: f.pop("mesh"), r"argument 'x' has axes \['dp', None\], and the description has no mesh: export"),
        (
            lambda f: f["mesh"]["parameters"].pop("w"),
            r"mesh: parameter 'w' is listed in parameters alone: export the bundle again",
        ),
        (
            lambda f: f["mesh"]["parameters"].update(w2=[None]),
            r"mesh: parameter 'w2' is listed in mesh alone; did you mean 'w'\?",
        ),
        (lambda f: f["entry_points"][0]["results"][0].pop("axes"), r"result 'y' has no axes, and the .* has a mesh"),
        (
            lambda f: _sized(f, tp=3, dp=2),
            r"parameter 'w': mesh tp=3,dp=2: tp=3 does not divide dimension 0 of \[8, 6\]",
        ),
        (lambda f: _sized(f, tp=2), r"argument 'x': axis 'dp' not found in the mesh; available: tp"),
        (lambda f: f["mesh"]["parameters"].update(w=["tp"]), r"expected one axis or None per dimension of \[8, 6\]"),
    ],
)
def test_a_table_that_contradicts_its_tensors_is_refused(tmp_path: Path, edit: Any, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        KernelConfig.read(edited(tmp_path / "kernel_config.json", edit))


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    for edit in (lambda f: f.update(mesh=[]), lambda f: f["mesh"]["axes"].update(tp="2")):
        with pytest.raises(InputError, match=r"damaged \(.*\): export the bundle again"):
            KernelConfig.read(edited(tmp_path / "kernel_config.json", edit))


def test_other_sizes_of_the_same_axes() -> None:
    larger = table_on(TABLE, MeshShape.parse("dp=4,tp=4"), [SIGNATURE], PARAMETERS)
    assert larger == dataclasses.replace(TABLE, axes=MeshShape.parse("dp=4,tp=4"))
    assert table_on(TABLE, MeshShape.parse("tp=2,ep=1"), [SIGNATURE], PARAMETERS).axes.size == 2


@pytest.mark.parametrize(
    ("table", "mesh", "message"),
    [
        (None, "tp=2", r"mesh=tp=2: the bundle was exported without a mesh, .*; export it with mesh=tp=2$"),
        (TABLE, "ep=2", r"mesh=ep=2: the bundle was exported with mesh=tp=2,dp=2, which has no axis 'ep'; export it"),
        (
            TABLE,
            "tp=3",
            r"mesh=tp=3: parameter 'w': mesh tp=3: tp=3 does not divide .*; or export the bundle with mesh",
        ),
        (TABLE, "dp=8", r"mesh=dp=8: entry point 'main': argument 'x': mesh dp=8: dp=8 does not divide dimension 0"),
    ],
)
def test_a_mesh_that_the_bundle_does_not_fit_is_refused(table: MeshTable | None, mesh: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        table_on(table, MeshShape.parse(mesh), [SIGNATURE], PARAMETERS)
