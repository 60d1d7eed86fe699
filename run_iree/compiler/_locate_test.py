from pathlib import Path

import pytest

from run_iree.compiler._locate import ModuleLocation, locate

_TEXT = """module @m {
  "util.global"() {sym_name = "w"} : () -> ()
  func.func public @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    // embed
    %0 = stablehlo.add %x, %x : tensor<2x3xf32>
    // layers.0
    %1:2 = "stablehlo.while"(%x, %0) ({
      // layers.0.attention
      %2, %3 = "stablehlo.custom_call"(%x) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
    }) : () -> ()
    %w = "util.global.load"() {global = @w} : () -> tensor<4x3xf32>
    return %1 : tensor<2x3xf32>
  }

  func.func private @block(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.tanh %x : tensor<2x3xf32>
    some text that is no op
  }
}
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (2, ModuleLocation("util.global", None)),
        (3, ModuleLocation("func.func", None)),
        (5, ModuleLocation("stablehlo.add", "embed")),
        (7, ModuleLocation("stablehlo.while", "layers.0")),
        (9, ModuleLocation("stablehlo.custom_call", "layers.0.attention")),
        (11, ModuleLocation("util.global.load", "layers.0")),
        (12, ModuleLocation("return", "layers.0")),
        (16, ModuleLocation("stablehlo.tanh", None)),
        (17, ModuleLocation(None, None)),
        (99, ModuleLocation(None, None)),
    ],
)
def test_a_line_is_placed(tmp_path: Path, line: int, place: ModuleLocation) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(_TEXT)
    assert locate(path, line) == place
