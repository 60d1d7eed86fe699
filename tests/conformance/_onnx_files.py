"""ONNX's own form of a test on disk: ``model.onnx`` beside ``test_data_set_<n>/{input,output}_<i>.pb``."""

import re
from pathlib import Path
from typing import Any

import onnx

from lang_core import InputError
from tests.conformance._onnx_cases import Case


def read_cases(folder: Path, rtol: float = 1e-3, atol: float = 1e-7) -> list[Case]:
    """A case per data set.

    Raises:
        InputError: a file is missing or damaged, or there is no data set.
    """
    path = folder / "model.onnx"
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # noqa: BLE001 - protobuf's errors have a class of their own, which onnx hides
        raise InputError(f"{path}: no ONNX model can be read: {error}: give a folder that holds model.onnx") from None
    sets = sorted(folder.glob("test_data_set_*"), key=_number)
    if not sets:
        raise InputError(f"{folder}: there is no folder test_data_set_0 with input_0.pb, .., output_0.pb, ..")
    given = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in given]
    cases = []
    for inputs_folder in sets:
        values = {proto.name: _value(inputs_folder / f"input_{i}.pb", proto) for i, proto in enumerate(inputs)}
        wanted = [_value(inputs_folder / f"output_{i}.pb", proto) for i, proto in enumerate(model.graph.output)]
        name = re.sub(r"\W", "_", f"{folder.name}_{_number(inputs_folder)}")
        cases.append(Case(f"test_{name}", model, values, wanted, rtol, atol))
    return cases


def _number(path: Path) -> int:
    return int("0" + "".join(filter(str.isdigit, path.name)))


def _value(path: Path, proto: onnx.ValueInfoProto) -> Any:
    """A tensor's data; None for a sequence or an optional value."""
    if not proto.type.HasField("tensor_type"):
        return None
    try:
        return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    except Exception as error:  # noqa: BLE001 - as above
        raise InputError(f"{path}: no tensor for {proto.name!r} can be read: {error}") from None
