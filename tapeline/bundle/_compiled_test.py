"""Texts of modules that are not compiled, as they hold more than an export writes."""

from pathlib import Path

import pytest

from lang_core import InputError
from tapeline.bundle._compiled import check_text_is_plain

_MODULE = """module @tapeline {
  util.global private @"model.norm.weight" = #flow.parameter.named<"model"::"hal.norm.weight"> : tensor<64xf32>
  func.func public @decode(%token_ids: tensor<1xi32>, %hal.x: i32) -> tensor<1x512xf32> attributes {iree.reflection = {
      tapeline.signature = "{\\22args\\22:\\22hal.executable\\22}"}} {  // hal.executable of a layer
    %0 = util.global.load @"model.norm.weight" : tensor<64xf32>
    %1 = "stablehlo.gather"(%0, %token_ids) : (tensor<64xf32>, tensor<1xi32>) -> tensor<1xf32>
    %2 = call @"hal.f"(%1) : (tensor<1xf32>) -> tensor<1xf32>
    return %2 : tensor<1xf32>
  }
}
"""


def test_names_of_a_model_may_be_any(tmp_path: Path) -> None:
    (tmp_path / "module.mlir").write_text(_MODULE)
    check_text_is_plain(tmp_path / "module.mlir", "hint")


@pytest.mark.parametrize(
    "line",
    [
        "  hal.executable.source private @k {",
        '  "hal.executable"() ({}) : () -> ()',
        "  util.func private @f() attributes {hal.import.static} {",
        '  #object = #hal.executable.object<{path = "evil.o"}>',
        "  func.func private @system(i32) -> i32",
        '  func.func private @"hal.device.queue.write"(i32)',
        "  llvm.func @system(!llvm.ptr) -> i32 {",
        "  vm.import private @f(%a : i32)",
        '  %0 = "llvm.call"(%1) : (i32) -> i32',
        "  flow.executable private @e {",
        "{-# dialect_resources: { builtin: {} } #-}",
        "  util.global private @g = #hal.executable.objects<{}> : i32",
        "  %0 = stablehlo.add %1, %2 {hal.executable.objects = []} : tensor<f32>",
    ],
)
def test_what_an_export_does_not_write_is_refused(line: str, tmp_path: Path) -> None:
    text = _MODULE.splitlines()
    (tmp_path / "module.mlir").write_text("\n".join([*text[:1], line, *text[1:]]))
    with pytest.raises(InputError, match=r"module\.mlir:2: .* is not part of a module that export writes.*; hint"):
        check_text_is_plain(tmp_path / "module.mlir", "hint")
