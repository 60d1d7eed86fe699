"""The exchanges that are predicted are those of XLA's compiled text, tensor by tensor: kind, bytes and number.

It needs four virtual devices: XLA_FLAGS=--xla_force_host_platform_device_count=4, which its target sets.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from lang_core import MeshShape
from tests.goldens.cases import CASES
from tests.goldens.encoders.cases import ENCODER_CASES
from tests.goldens.grown import grown
from tests.planning._compiled import Planned, compiled_exchanges, predicted_exchanges
from transformer_core.models import entry_points, load_model
from transformer_core.sharding import divide_experts

_LONG: Final = os.environ.get("TAPELINE_LONG") == "1"
_BATCH: Final = 2

# Sample of families whose layers are of different kinds: (case, mesh, entry point).
_SAMPLE: Final = (
    ("llama_gqa", "tp=4", "prefill"),
    ("gpt_oss", "tp=2,ep=2", "decode"),
    ("gemma4_moe", "tp=4", "decode"),
    ("qwen3_next", "tp=2,dp=2", "decode"),
    ("deepseek_v3", "tp=2,dp=2", "decode"),
)
_SLOTS: Final = ("deepseek_v3", "mistral_window", "mamba2", "qwen3_next")
_EXPERTS: Final = ("deepseek_v3", "gpt_oss", "mixtral", "nemotron_h", "llama4")
_ODD: Final = "lfm2_4x", "tp=4"  # 162 features, which four devices do not divide


def _all() -> list[tuple[str, str, str]]:
    cases = [(name, mesh, "decode") for name in CASES for mesh in ("tp=2", "tp=4") if (name, mesh) != _ODD]
    cases += [(name, "tp=2", "prefill") for name in CASES]
    cases += [(name, mesh, "decode") for name in CASES for mesh in ("dp=2", "tp=2,dp=2")]
    return cases + [(name, mesh, "decode") for name in _EXPERTS for mesh in ("ep=2", "tp=2,ep=2")]


def _encoders() -> list[tuple[str, str]]:
    if not _LONG:
        return [("vit", "tp=2"), ("t5_gated", "tp=2")]
    return [(name, mesh) for name in ENCODER_CASES for mesh in ("tp=2", "tp=4")]


@pytest.mark.parametrize(("case", "mesh"), _encoders())
def test_exchanges_of_encoders_are_those_of_the_compiled_text(tmp_path: Path, case: str, mesh: str) -> None:
    """An encoder's keys and values lie as the decoder has them: no cache is gathered."""
    (tmp_path / "config.json").write_text(json.dumps(grown(dict(ENCODER_CASES[case].config))))
    model, shape = load_model(tmp_path, weights=False), MeshShape.parse(mesh)
    points = entry_points(model, batch=_BATCH)
    for point in points:
        planned = Planned(model, point, shape, _BATCH, points)
        assert predicted_exchanges(planned.predicted()) == compiled_exchanges(planned.compiled(tmp_path))


def _planned(directory: Path, case: str, mesh: str, point: str, **options: Any) -> Planned:
    config = {**grown(CASES[case].config, experts="ep" in mesh), **options.pop("config", {})}
    (directory / "config.json").write_text(json.dumps(config))
    load = {name: options.pop(name) for name in ("dtype", "quantize") if name in options}
    model = load_model(directory, weights=False, **load)
    divide_experts(model, MeshShape.parse(mesh))
    sizes: dict[str, Any] = {"batch": _BATCH, "sequence": 6, "max_sequence": 24}
    names: dict[str, Any] = {} if "slots" in options else {"names": [point]}
    (made,) = (entry for entry in entry_points(model, **(sizes | options | names)) if entry.name == point)
    return Planned(model, made, MeshShape.parse(mesh), _BATCH)


def _check(directory: Path, case: str, mesh: str, point: str, **options: Any) -> None:
    planned = _planned(directory, case, mesh, point, **options)
    assert predicted_exchanges(planned.predicted()) == compiled_exchanges(planned.compiled(directory))


@pytest.mark.parametrize(("case", "mesh", "point"), _all() if _LONG else _SAMPLE)
def test_exchanges_are_those_of_the_compiled_text(tmp_path: Path, case: str, mesh: str, point: str) -> None:
    _check(tmp_path, case, mesh, point)


@pytest.mark.parametrize("positions", ["shared", "per_row"])
def test_so_they_are_where_groups_of_devices_hold_a_head_of_keys_each(tmp_path: Path, positions: str) -> None:
    _check(tmp_path, "llama_gqa", "tp=4", "decode", positions=positions, config={"num_key_value_heads": 2})


def test_rounds_over_experts_are_as_many_as_are_chosen_of_one_device(tmp_path: Path) -> None:
    """Two tokens choose two experts each, of four that each of two devices has."""
    work = _planned(tmp_path, "mixtral", "tp=2,ep=2", "decode", config={"num_local_experts": 8}).predicted()
    rows = [row for row in work.collectives if row.path.endswith("experts") and row.axes == "tp"]
    assert all(1 < work.calls[row] / work.collectives[row] <= 4 for row in rows)
    assert rows


@pytest.mark.parametrize("case", ["llama_gqa", "qwen3_moe"] if _LONG else ["llama_gqa"])
@pytest.mark.parametrize("mesh", ["tp=2", "tp=4"] if _LONG else ["tp=2"])
def test_so_they_are_where_each_row_has_its_position(tmp_path: Path, case: str, mesh: str) -> None:
    _check(tmp_path, case, mesh, "decode", positions="per_row")


@pytest.mark.parametrize("case", ["llama_gqa", *(_SLOTS if _LONG else ())])
@pytest.mark.parametrize("point", ["decode", "prefill_row", "copy_row"] if _LONG else ["decode"])
def test_so_they_are_where_rows_of_caches_are_slots(tmp_path: Path, case: str, point: str) -> None:
    _check(tmp_path, case, "tp=2", point, slots=3, batch=1)


@pytest.mark.parametrize("encoding", ["q8_0", "q4_0"] if _LONG else ["q8_0"])
@pytest.mark.parametrize("mesh", ["tp=2", "tp=4"] if _LONG else ["tp=2"])
def test_so_they_are_where_weights_are_packed(tmp_path: Path, mesh: str, encoding: str) -> None:
    _check(tmp_path, "llama_gqa", mesh, "decode", quantize=encoding)


@pytest.mark.skipif(not _LONG, reason="one more compilation: TAPELINE_LONG=1 runs it")
def test_sums_of_bf16_are_as_many_though_a_cpu_adds_them_up_in_f32(tmp_path: Path) -> None:
    planned = _planned(tmp_path, "llama_gqa", "tp=2", "decode", dtype="bf16")
    predicted, compiled = predicted_exchanges(planned.predicted()), compiled_exchanges(planned.compiled(tmp_path))
    row = 2 * _BATCH * 192  # of D numbers in bf16
    assert predicted["all-reduce", row] == compiled["all-reduce", 2 * row] == 2 * 2 + 1
    del predicted["all-reduce", row], compiled["all-reduce", 2 * row]
    assert predicted == compiled
