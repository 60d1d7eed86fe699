from pathlib import Path

import pytest

from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters
from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec
from run_iree.compiler._data_tiling import tiling_flags
from run_iree.compiler._targets import DATA_TILING, target_named


def _text(tmp_path: Path, rows: int, dtype: str = "f32", size: int = 256, cache: bool = False) -> Path:
    def fn(ctx: ExecutionContext, x: Tensor, w: Tensor, kept: Tensor) -> dict[str, Tensor]:
        kept = ctx.ops.add(kept, 1.0)
        return {"y": ctx.ops.linear(x, w), "kept": kept}

    arguments = (
        Argument("x", TensorSpec((1, rows, size), dtype)),
        Argument("w", TensorSpec((size, size), dtype)),
        Argument("kept", TensorSpec((2,), "f32"), alias_result="kept" if cache else None),
    )
    path = tmp_path / "module.mlir"
    with path.open("w") as file:
        lower_module([EntryPoint("forward", fn, arguments)], file.write, ExternalParameters())
    return path


@pytest.mark.parametrize("rows", [33, 50, 77, 197, 257, 577, 1370])
def test_rows_that_fill_no_tiles_get_data_tiling(tmp_path: Path, rows: int):
    assert tiling_flags(_text(tmp_path, rows), target_named("llvm-cpu")) == (DATA_TILING,)


@pytest.mark.parametrize("rows", [1, 5, 32, 64, 196, 256, 1500])
def test_rows_that_fill_tiles_and_few_rows_do_without_a_second_copy_of_the_weights(tmp_path: Path, rows: int):
    assert tiling_flags(_text(tmp_path, rows), target_named("llvm-cpu")) == ()


def test_other_dtypes_small_weights_caches_and_other_targets_do_without(tmp_path: Path):
    cpu = target_named("llvm-cpu")
    assert tiling_flags(_text(tmp_path, 197, "bf16"), cpu) == ()  # a helper function, which has a kernel
    assert tiling_flags(_text(tmp_path, 197, size=128), cpu) == ()
    assert tiling_flags(_text(tmp_path, 197, cache=True), cpu) == ()
    assert tiling_flags(_text(tmp_path, 197), target_named("vmvx")) == ()
