from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir.dialects import stablehlo

from compile_hlo.portable import ARTIFACT_VERSION, _child, interpret, verify_text, write_artifact
from lang_core import VerificationError

_GOOD = """module @m {
  func.func private @twice(%x: tensor<2x3xbf16>) -> tensor<2x3xbf16> {
    %y = stablehlo.add %x, %x : tensor<2x3xbf16>
    return %y : tensor<2x3xbf16>
  }
  func.func public @start(%x: tensor<2x3xbf16>, %n: tensor<i32>) -> (tensor<2x3xbf16>, tensor<i32>) {
    %y = call @twice(%x) : (tensor<2x3xbf16>) -> tensor<2x3xbf16>
    %m = stablehlo.multiply %n, %n : tensor<i32>
    return %y, %m : tensor<2x3xbf16>, tensor<i32>
  }
}
"""


def _file(folder: Path, text: str) -> Path:
    path = folder / "m.mlir"
    path.write_text(text)
    return path


def test_valid_text_passes_with_ops_of_other_dialects(tmp_path: Path) -> None:
    verify_text(_file(tmp_path, _GOOD.replace("%m =", '%u = "util.thing"() : () -> i32\n    %m =')))


@pytest.mark.parametrize(
    ("old", "new"),
    [("stablehlo.multiply %n, %n", "stablehlo.multiply %n, %x"), ("}\n}\n", ""), ("stablehlo.add", "stablehlo.ad")],
)
def test_what_is_no_stablehlo_is_refused_with_its_line(tmp_path: Path, old: str, new: str) -> None:
    path = _file(tmp_path, _GOOD.replace(old, new))
    with pytest.raises(VerificationError, match=r"(?s)m\.mlir: no valid StableHLO: .*m\.mlir:\d+:\d+: "):
        verify_text(path)


def test_what_is_no_stablehlo_becomes_no_artifact(tmp_path: Path) -> None:
    path = _file(tmp_path, _GOOD.replace("%m =", '%u = "util.thing"() : () -> i32\n    %m ='))
    with pytest.raises(VerificationError, match=r"(?s)m\.mlir: no valid StableHLO: .*unregistered dialect"):
        write_artifact(path, tmp_path / "m.vhlo")
    assert not (tmp_path / "m.vhlo").exists()


def test_artifacts_are_read_by_stablehlo_and_do_not_name_their_folder(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        artifact = tmp_path / name / "m.vhlo"
        write_artifact(_file(tmp_path / name, _GOOD), artifact)
        made.append(artifact.read_bytes())
    assert made[0] == made[1]
    assert f"StableHLO_v{ARTIFACT_VERSION}".encode() in made[0]
    context = mlir.make_ir_context()
    with context:
        module = stablehlo.deserialize_portable_artifact(context, made[0])
        assert [str(op.attributes["sym_name"]) for op in module.body.operations] == ['"twice"', '"start"']


def test_an_artifact_of_a_version_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        VerificationError,
        match=r"m\.mlir: cannot become a StableHLO 999\.0\.0 artifact: .*: take a version from 0\.9\.0 to \d",
    ):
        write_artifact(_file(tmp_path, _GOOD), tmp_path / "m.vhlo", "999.0.0")


def test_the_interpreter_runs_the_public_function(tmp_path: Path) -> None:
    x = np.array([[1, -2.5, np.inf], [0.5, 3e38, -0.0]], ml_dtypes.bfloat16)
    y, m = interpret(_file(tmp_path, _GOOD), [x, np.array(7, np.int32)])
    assert (y.dtype, m.dtype) == (x.dtype, np.int32)
    assert y.tobytes() == np.array([[2, -5, np.inf], [1, np.inf, -0.0]], ml_dtypes.bfloat16).tobytes()
    assert (m.shape, int(m)) == ((), 49)


def test_the_interpreter_wants_one_public_function(tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match=r"m\.mlir: has 2 public functions, the interpreter runs one: name one"):
        interpret(_file(tmp_path, _GOOD.replace("private", "public")), [])
    with pytest.raises(VerificationError, match=r"m\.mlir: the StableHLO interpreter refuses it"):
        interpret(_file(tmp_path, _GOOD), [np.array(7, np.int32)])


def test_a_child_that_dies_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "_TOOLS", "os")
    with pytest.raises(VerificationError, match="abort: the process that ran it died"):
        _child._in_child("abort")


def test_what_a_tool_raises_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "_TOOLS", "os")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        _child._in_child("listdir", "/nowhere")


def test_what_a_tool_writes_to_stdout_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_child, "_TOOLS", "os")
    assert _child._in_child("write", 1, b"a word") == 6
    assert capfd.readouterr() == ("", "a word")


def test_the_child_imports_nothing_of_its_parents_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_child, "_TOOLS", "builtins")
    assert _child._in_child("eval", "sorted({'pytest', 'pickle'} & {*__import__('sys').modules})") == ["pickle"]
