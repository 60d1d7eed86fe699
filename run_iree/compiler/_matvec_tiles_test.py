"""Selection of products that get tiles, and their results."""

from pathlib import Path

import numpy as np
import pytest

from lang_core import as_dtype
from run_iree.compiler import _compile
from run_iree.compiler._compile import compile_module
from run_iree.compiler._targets import target_named
from run_iree.devices import Device
from run_iree.sessions import Session

# N x K, and the rows and columns of a tile.
TILED = {
    (2048, 256): (512, 128),
    (1760, 64): (352, 64),
    (1024, 96): (256, 32),
    (384, 128): (128, 128),
    (192, 32): (64, 32),
    (48, 192): (16, 64),
}
UNTILED = [(2048, 40), (50, 128), (5, 7)]


def module(shapes: list[tuple[int, int]], dtype: str) -> str:
    functions = [
        f"""  func.func public @f{n}x{k}(%x: tensor<1x{k}x{dtype}>, %w: tensor<{n}x{k}x{dtype}>) -> tensor<1x{n}xf32> {{
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
      : (tensor<1x{k}x{dtype}>, tensor<{n}x{k}x{dtype}>) -> tensor<1x{n}xf32>
    return %0 : tensor<1x{n}xf32>
  }}
"""
        for n, k in shapes
    ]
    return f"module @matvecs {{\n{''.join(functions)}}}\n"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_tiles_are_those_of_the_table(dtype: str, tmp_path: Path) -> None:
    source, output = tmp_path / "module.mlir", tmp_path / "configured.mlir"
    for shape, (rows, columns) in TILED.items():
        source.write_text(module([shape], dtype))
        compile_module(source, output, "llvm-cpu", extra_flags=["--compile-to=executable-configurations"])
        text = output.read_text()
        assert f"distribution = [{rows}, 0]" in text, shape
        assert f"vector_reduction = [0, {columns}]" in text, shape
    source.write_text(module(UNTILED, dtype))
    compile_module(source, output, "llvm-cpu", extra_flags=["--compile-to=executable-configurations"])
    assert "lowering_config" in output.read_text()
    assert "vector_common_parallel = [1, 0]" not in output.read_text()


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("bf16", 1e-5), ("f16", 1e-5)])
def test_tiled_products_are_those_of_numpy(dtype: str, tolerance: float, tmp_path: Path) -> None:
    shapes = [*TILED, *UNTILED]
    source, output = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    source.write_text(module(shapes, dtype))
    compile_module(source, output, "llvm-cpu")
    random = np.random.default_rng(3)
    with Session(output, Device("local-task")) as session:
        for n, k in shapes:
            x = random.standard_normal((1, k)).astype(as_dtype(dtype).numpy)
            w = random.standard_normal((n, k)).astype(as_dtype(dtype).numpy)
            wanted = x.astype(np.float64) @ w.astype(np.float64).T
            (result,) = session.function(f"f{n}x{k}")(x, w)
            assert np.abs(result.numpy() - wanted).max() < tolerance * np.abs(wanted).max()


def test_a_generic_cpu_gets_tiles_too(tmp_path: Path) -> None:
    source, output = tmp_path / "module.mlir", tmp_path / "configured.mlir"
    source.write_text(module([(2048, 256)], "bf16"))
    target = target_named("llvm-cpu", cpu="generic")
    compile_module(source, output, target, extra_flags=["--compile-to=executable-configurations"])
    assert "distribution = [512, 0]" in output.read_text()


def test_a_tuning_spec_goes_with_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the compiler may wait for ever, now and then."""
    commands: list[list[str]] = []
    run = _compile._run

    def noted(command: list[str], folder: Path) -> tuple[int, int, str]:
        commands.append(command)
        return run(command, folder)

    monkeypatch.setattr(_compile, "_run", noted)
    source = tmp_path / "module.mlir"
    source.write_text(module([(5, 7)], "f32"))
    for target in ("llvm-cpu", "vmvx"):
        compile_module(source, tmp_path / "module.vmfb", target)
    assert [any("tuning-spec" in flag for flag in command) for command in commands] == [True, False]
    assert ["--mlir-disable-threading" in command for command in commands] == [True, False]


def test_a_compiled_module_does_not_tell_where_the_tuning_spec_was(tmp_path: Path) -> None:
    source, output = tmp_path / "module.mlir", tmp_path / "module.vmfb"
    source.write_text(module([(2048, 256)], "bf16"))
    compile_module(source, output, "llvm-cpu")
    assert b"tapeline-tuning" not in output.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["module.mlir", "module.vmfb"]
