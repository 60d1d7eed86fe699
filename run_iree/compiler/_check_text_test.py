"""The text of a module is parsed and verified by IREE alone."""

from pathlib import Path

import pytest

from lang_core import VerificationError
from run_iree.compiler import check_text

_GOOD = """module @m {
  util.global private @w = #flow.parameter.named<"model"::"w"> : tensor<2x3xf32>
  func.func public @main(%x: tensor<2x3xf32>, %n: tensor<i32>) -> (tensor<2x3xf32>, tensor<i32>) {
    %w = util.global.load @w : tensor<2x3xf32>
    %y = stablehlo.add %x, %w : tensor<2x3xf32>
    %m = stablehlo.multiply %n, %n : tensor<i32>
    return %y, %m : tensor<2x3xf32>, tensor<i32>
  }
}
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "m.mlir"
    path.write_text(text)
    return path


def test_a_module_with_parameters_passes(tmp_path: Path) -> None:
    check_text(_file(tmp_path, _GOOD))
    assert [path.name for path in tmp_path.iterdir()] == ["m.mlir"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("stablehlo.multiply %n, %n", "stablehlo.multiply %n, %x"),
        ("}\n}\n", ""),
        ("stablehlo.add", "stablehlo.ad"),
        (
            "%m = stablehlo.multiply %n, %n : tensor<i32>",
            "%m = stablehlo.reshape %x : (tensor<2x3xf32>) -> tensor<i32>",
        ),
    ],
)
def test_what_is_no_stablehlo_is_refused_with_its_line(tmp_path: Path, old: str, new: str) -> None:
    path = _file(tmp_path, _GOOD.replace(old, new))
    assert path.read_text() != _GOOD
    with pytest.raises(VerificationError, match=r"(?s)m\.mlir: no valid StableHLO: .*m\.mlir:\d+:\d+: "):
        check_text(path)
