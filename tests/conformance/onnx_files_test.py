"""Models on disk, in ONNX's form, as tests of others have them."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from lang_core import InputError
from tests.conformance._onnx_files import read_cases
from tests.conformance._onnx_modes import MODES, failures


def _written(folder: Path, op: str, wanted: list[float]) -> Path:
    kind = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, kind, [2, 3]) for name in "xy"]
    node = onnx.helper.make_node(op, ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    (folder / "test_data_set_0").mkdir(parents=True)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), folder / "model.onnx")
    x = np.array([[-1.5, 0, 2], [3, -4, 0.5]], np.float32)
    for name, array in (("input_0", x), ("output_0", np.array(wanted, np.float32).reshape(2, 3))):
        proto = onnx.numpy_helper.from_array(array)
        (folder / "test_data_set_0" / f"{name}.pb").write_bytes(proto.SerializeToString())
    return folder


@pytest.mark.parametrize("mode", MODES)
def test_a_model_is_right_or_wrong(mode: str, tmp_path: Path) -> None:
    right = read_cases(_written(tmp_path / "right", "Relu", [0, 0, 2, 3, 0, 0.5]))
    assert [case.name for case in right] == ["test_right_0"]
    assert not failures(right, MODES[mode])
    (line,) = failures(read_cases(_written(tmp_path / "wrong", "Relu", [0, 0, 2, 3, 1, 0.5])), MODES[mode])
    assert line.startswith("test_wrong_0: AssertionError")
    assert "Mismatched elements: 1 / 6" in line


def test_what_is_not_expressible_says_why(tmp_path: Path) -> None:
    (case,) = read_cases(_written(tmp_path / "m", "Atan", [0] * 6))
    assert case.reason == "inverse trigonometric functions: the op table has none"


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model.onnx: no ONNX model can be read: .*give a folder that holds"):
        read_cases(tmp_path)
    folder = _written(tmp_path / "m", "Relu", [0] * 6)
    (folder / "test_data_set_0" / "output_0.pb").write_bytes(b"\xff\xff")
    with pytest.raises(InputError, match=r"output_0.pb: no tensor for 'y' can be read"):
        read_cases(folder)
    (folder / "test_data_set_0").rename(folder / "data")
    with pytest.raises(InputError, match=r"there is no folder test_data_set_0 with input_0\.pb"):
        read_cases(folder)
