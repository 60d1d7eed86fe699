"""Plans of the largest published models, of config.json alone: facts of theirs, seconds, 12 MiB."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

import tapeline
from tapeline.analysis.planning import plan_text
from tapeline.bundle import PhaseMeter
from tools.benching.suites._experts import DEEPSEEK_V3, MIXTRAL_8X22B
from tools.benching.suites._plan import LLAMA_405B, large_config

_MOST: Final = 12 << 20
# Published configurations, and the parameters that they give; DeepSeek-V3's 58 x 256 biases of its routers are f32.
_MODELS: Final[dict[str, tuple[dict[str, Any], int]]] = {
    "Llama 3.1 405B": (large_config(LLAMA_405B), 405_853_388_800),
    "DeepSeek-V3": (DEEPSEEK_V3, 671_026_419_200),
    "Mixtral 8x22B": (MIXTRAL_8X22B, 140_620_634_112),
}


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Plans a tiny model first, so that what is imported when it is first used is there."""
    _planned(tmp_path_factory.mktemp("tiny"), large_config(LLAMA_405B) | {"num_hidden_layers": 1})


def _planned(directory: Path, config: dict[str, Any], **options: Any) -> dict[str, Any]:
    (directory / "config.json").write_text(json.dumps(config))
    given: dict[str, Any] = {"weights": "none", "target": (), "verify": "none", "dtype": "bf16", "mesh": "tp=8"}
    sizes: dict[str, Any] = {"sequence": 2048, "max_sequence": 8192}
    return tapeline.predict_export(directory, directory / "x", hardware="h100-sxm", **(given | sizes | options))


@pytest.mark.parametrize("name", _MODELS)
def test_a_plan_takes_no_more_memory_than_it_promises(tmp_path: Path, name: str) -> None:
    config, parameters = _MODELS[name]
    meter = PhaseMeter()
    with meter.phase("plan"):
        told = _planned(tmp_path, config)
        text = plan_text(told["devices"])
    assert meter.phases["plan"].anonymous_delta_bytes < _MOST
    assert told["parameters"]["bytes"] == 2 * (parameters + (58 * 256 if name == "DeepSeek-V3" else 0))
    held = told["devices"]["asked"]["bytes_per_device"]
    assert held["weights"] >= 2 * parameters / 8
    assert told["devices"]["fits"] == (held["total"] <= 80e9)
    assert "largest batch" in text


def test_405b_does_not_fit_eight_devices_in_bf16_and_does_in_q8_0(tmp_path: Path) -> None:
    config, parameters = _MODELS["Llama 3.1 405B"]
    told = _planned(tmp_path, config)["devices"]
    assert told["fits"] is False
    prefill, decode = told["asked"]["entry_points"]
    # Two flops per parameter and token; the table is looked up. Scores and sums of values of 8,192 keys, per layer.
    head, attention = 2 * 128256 * 16384 / 8, 126 * 4 * 16384 * 8192 / 8
    token = 2 * parameters / 8 - head + attention
    assert decode["flops"]["bf16"] == pytest.approx(token, rel=1e-3)
    assert prefill["flops"]["bf16"] == pytest.approx(2048 * (token - head) + head, rel=1e-3)
    assert decode["bound"] == "memory"
    assert decode["seconds"]["memory"] == pytest.approx(
        told["asked"]["bytes_per_device"]["weights"] / 3.35e12, rel=0.02
    )
    sums = [row for row in decode["collectives"] if row["kind"] == "all-reduce" and row["bytes"] == 2 * 16384]
    assert sum(row["calls"] for row in sums) == 2 * 126 + 1
    packed = _planned(tmp_path, config, quantize="q8_0")["devices"]
    assert packed["fits"] is True
    assert packed["largest_batch"]["batch"] > 1
    assert packed["asked"]["bytes_per_device"]["packed_weights"] > 0.99 * packed["asked"]["bytes_per_device"]["weights"]


def test_groups_of_devices_hold_a_head_of_keys_and_values_each(tmp_path: Path) -> None:
    config = large_config(LLAMA_405B) | {"num_hidden_layers": 1, "num_key_value_heads": 4}
    held = [_planned(tmp_path, config, mesh=mesh)["devices"]["asked"]["bytes_per_device"] for mesh in ("tp=4", "tp=8")]
    one_head = 8192 * 128 * 2
    assert held[0]["caches"] == held[1]["caches"] == {"key_cache": one_head, "value_cache": one_head}


def test_a_token_reads_the_experts_that_it_chooses(tmp_path: Path) -> None:
    """DeepSeek-V3 has 37B active parameters of 671B (its report, arXiv:2412.19437)."""
    decode = _planned(tmp_path, DEEPSEEK_V3, mesh="tp=1")["devices"]["asked"]["entry_points"][1]
    assert decode["memory_bytes"] == pytest.approx(2 * 37e9, rel=0.05)
