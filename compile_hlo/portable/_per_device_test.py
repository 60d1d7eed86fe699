"""Programs of one device: collectives are explicit, what the passes do wrongly is gone round, errors are typed."""

from pathlib import Path

import pytest

from compile_hlo.portable import write_per_device
from lang_core import Axes, MeshShape, VerificationError

_MESH = MeshShape.parse("tp=2")
_ROW: Axes = (None, "tp")
_TEXT = """module @m {
  func.func private @product(%x: tensor<3x8xf32>, %w: tensor<8x8xf32>) -> tensor<3x8xf32> {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
    return %y : tensor<3x8xf32>
  }
  func.func public @total(%x: tensor<3x8xf32>, %w: tensor<8x8xf32>) -> tensor<3x8xf32> {
    %y = call @product(%x, %w) : (tensor<3x8xf32>, tensor<8x8xf32>) -> tensor<3x8xf32>
    return %y : tensor<3x8xf32>
  }
  func.func public @most(%x: tensor<3x8xf32>) -> tensor<3xf32> {
    %least = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %y = stablehlo.reduce(%x init: %least) applies stablehlo.maximum across dimensions = [1] : (tensor<3x8xf32>, tensor<f32>) -> tensor<3xf32>
    return %y : tensor<3xf32>
  }
  func.func public @rows(%table: tensor<8x4xf32>, %ids: tensor<3xi32>) -> tensor<3x4xf32> {
    %y = "stablehlo.gather"(%table, %ids) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>}> : (tensor<8x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
    return %y : tensor<3x4xf32>
  }
}
"""  # noqa: E501


def _written(folder: Path, **axes: tuple[list[Axes], list[Axes]]) -> tuple[str, dict[str, list[int]]]:
    (folder / "m.mlir").write_text(_TEXT)
    whole = write_per_device(folder / "m.mlir", folder / "one.mlir", _MESH, axes)
    return (folder / "one.mlir").read_text(), whole


def test_functions_are_inlined_and_a_product_over_what_is_cut_is_summed(tmp_path: Path) -> None:
    text, whole = _written(tmp_path, total=([_ROW, ("tp", None)], [(None, None)]))
    assert "@total(%arg0: tensor<3x4xf32>, %arg1: tensor<4x8xf32>)" in text
    assert (text.count('"stablehlo.all_reduce"'), text.count("call"), text.count("sdy")) == (1, 0, 0)
    assert "mhlo.num_partitions = 2 : i32" in text
    assert whole == {"total": []}


def test_the_greatest_is_taken_of_the_whole_line(tmp_path: Path) -> None:
    """The passes would add up the greatest of each device."""
    text, _ = _written(tmp_path, most=([_ROW], [(None,)]))
    assert (text.count('"stablehlo.all_reduce"'), text.count('"stablehlo.all_gather"')) == (0, 1)


def test_tables_that_are_searched_stay_whole(tmp_path: Path) -> None:
    """The passes would abort."""
    text, whole = _written(tmp_path, rows=([("tp", None), (None,)], [(None, None)]))
    assert "@rows(%arg0: tensor<8x4xf32>, %arg1: tensor<3xi32>)" in text
    assert whole == {"rows": [0]}


def test_several_functions_make_one_module(tmp_path: Path) -> None:
    text, _ = _written(tmp_path, most=([_ROW], [(None,)]), total=([_ROW, ("tp", None)], [_ROW]))
    assert text.index("@most") < text.index("@total")
    assert "-> tensor<3x4xf32>" in text


def test_an_unknown_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        VerificationError, match=r"m\.mlir: function 'least' not found; available: product, total, most"
    ):
        _written(tmp_path, least=([], []))


def test_what_jaxlib_refuses_is_an_error_that_says_it(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r'(?s)write_per_device: .*unknown axis name: "ep"'):
        _written(tmp_path, total=([(None, "ep"), ("ep", None)], [(None, None)]))
