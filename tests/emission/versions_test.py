"""Portable artifacts of the oldest version of StableHLO that its serialiser writes come back as they were."""

from pathlib import Path
from typing import Final

import pytest
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from lang_core import f32
from run_iree import compile_module
from tests.emission._op_cases import CASES
from tests.emission._support import graph_of, parsed, text_of

# Ops that need a later version as they are emitted: gather and scatter with batching dimensions.
_SINCE: Final = {"gather": "1.1.0", "scatter": "1.1.0"}


def _artifact(module: ir.Module, version: str) -> bytes:
    with module.context:
        return stablehlo.serialize_portable_artifact_str(str(module), version)


def _read_back(text: str, version: str) -> str:
    module = parsed(text)
    artifact = _artifact(module, version)
    assert f"StableHLO_v{version}".encode() in artifact
    with module.context:
        again = stablehlo.deserialize_portable_artifact(module.context, artifact)
        assert again.operation.verify()
        return str(again)


def _round_trip(text: str, version: str) -> None:
    """Asserts that the oldest version brings back what the newest does; both drop attributes that are the default."""
    assert _read_back(text, version) == _read_back(text, stablehlo.get_current_version())


def test_every_op_comes_back() -> None:
    cases = [case for case in CASES if case.op not in _SINCE]
    text = text_of(map(graph_of, cases))
    _round_trip(text, stablehlo.get_minimum_version())
    assert _read_back(text, stablehlo.get_current_version()).count("func.func") == len(cases)


@pytest.mark.parametrize("op", sorted(_SINCE))
def test_what_is_younger_comes_back_from_its_version_on(op: str) -> None:
    text = text_of([graph_of(case) for case in CASES if case.op == op])
    _round_trip(text, _SINCE[op])
    with pytest.raises(ValueError, match="failed to serialize"):
        _artifact(parsed(text), "1.0.0")


def test_iree_reads_the_oldest(tmp_path: Path) -> None:
    names = ("add", "dot_general", "dynamic_update_slice", "take", "sum")
    text = text_of([graph_of(next(case for case in CASES if case.op == op and case.dtype is f32)) for op in names])
    path = tmp_path / "oldest.vhlo"
    path.write_bytes(_artifact(parsed(text), stablehlo.get_minimum_version()))
    assert compile_module(path, tmp_path / "m.vmfb", "vmvx").vmfb_bytes > 1000
