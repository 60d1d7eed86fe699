"""Exports for a mesh: the table, the portable module, notes, and meshes that a model does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import tapeline
from lang_core import ConfigError, InputError, MeshShape
from tapeline.bundle import Bundle
from tapeline.cli import ProgressEvent
from tests.product._bundles import stablehlo_here


def export(path: Path, mesh: str | None, **options: Any) -> Bundle:
    with stablehlo_here():
        return tapeline.export(
            "demo", path / "bundle", mesh=mesh, target=(), verify="parse", sequence=8, max_sequence=24, **options
        )


def _described(bundle: Bundle, name: str) -> dict[str, Any]:
    """Returns the axes of the arguments and results of an entry point, as the file has them."""
    fields = json.loads((bundle.path / "kernel_config.json").read_text())
    (point,) = [point for point in fields["entry_points"] if point["name"] == name]
    return {tensor["name"]: tensor.get("axes") for tensor in (*point["args"], *point["results"])}


def test_the_table_says_how_every_tensor_lies(tmp_path: Path) -> None:
    bundle = export(tmp_path, "tp=2,dp=2", batch=2)
    config = bundle.config
    assert config.mesh is not None
    assert config.mesh.axes == MeshShape.parse("tp=2,dp=2")
    assert list(config.mesh.parameters) == list(config.parameters)
    assert config.mesh.parameters["model.layers.1.self_attn.o_proj.weight"] == (None, "tp")
    axes = _described(bundle, "decode")
    assert (axes["token_ids"], axes["position"], axes["next_ids"]) == (["dp", None], None, ["dp"])
    assert axes["layers.0.key_cache"] == ["dp", "tp", None, None]
    assert axes["logits"] == ["dp", None]
    report = json.loads((bundle.path / "report.json").read_text())
    assert report["mesh"] == {"axes": {"tp": 2, "dp": 2}, "notes": []}


def test_the_text_has_no_shardings_and_is_that_without_a_mesh(tmp_path: Path) -> None:
    texts = [export(tmp_path / str(mesh), mesh).path / "module.mlir" for mesh in (None, "tp=4")]
    assert texts[0].read_bytes() == texts[1].read_bytes()


def test_caches_of_slots_are_written_across_heads_in_the_portable_module_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"slots": 2}
    bundle = export(tmp_path, "tp=2", **options)
    heads_are_whole = "update_window_dims = [1, 3]"
    assert heads_are_whole in _portable_text(bundle)
    assert heads_are_whole not in (bundle.path / "module.mlir").read_text()
    assert heads_are_whole not in _portable_text(export(tmp_path / "whole", None, **options))


def _portable_text(bundle: Bundle) -> str:
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        return str(stablehlo.deserialize_portable_artifact(context, (bundle.path / "module.vhlo").read_bytes()))


def test_what_is_replicated_is_said_in_the_log_and_the_report(tmp_path: Path) -> None:
    lines: list[str] = []

    def progress(event: ProgressEvent) -> None:
        lines.append(event.text)

    bundle = export(tmp_path, "tp=4", progress=progress)
    notes = json.loads((bundle.path / "report.json").read_text())["mesh"]["notes"]
    assert any("2 key/value heads for tp=4: replicated in groups of 2 devices" in note for note in notes)
    assert [line.removeprefix("mesh tp=4: ") for line in lines if line.startswith("mesh tp=4: ")] == notes


@pytest.mark.parametrize(
    ("mesh", "options", "kind", "message"),
    [
        ("tp", {}, ConfigError, r"mesh 'tp': 'tp' is no axis with a size; give axes as 'tp=2,dp=2'"),
        (
            "tp=3",
            {},
            ConfigError,
            r"mesh tp=3: model.layers.0.self_attn.q_proj.weight has 4 query heads, .*; tp may be",
        ),
        ("ep=2", {}, ConfigError, r"mesh ep=2: ep=2 cuts nothing, for the model has no experts"),
        ("dp=2", {}, ConfigError, r"mesh dp=2: batch=1 sequences cannot be divided among dp=2; batch may be 2"),
        ("fsdp=2", {}, InputError, r"mesh=fsdp=2: fsdp cuts parameters while a model is trained: choose tp, ep or dp"),
        ("tp=2,dp=2", {"slots": 2}, InputError, r"slots=2 with mesh=tp=2,dp=2: requests share the rows of the caches"),
    ],
)
def test_a_mesh_that_does_not_fit_is_refused_before_any_work(
    tmp_path: Path, mesh: str, options: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        export(tmp_path, mesh, **options)
    assert not (tmp_path / "bundle").exists()
