"""Entry points with kernels in them: streamed text is buffered text, and heuristics give the model's own."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune import ConfigSelectorChain, Executor, Invocation, Kernel, extract_labels_from_hlo_text
from autotune import with_kernels as in_kernels
from autotune.supplied import composite_kernels
from compile_hlo import lower_module
from compile_hlo.emit import ExternalParameters, tensor_type
from lang_core import EntryPoint
from tests.goldens.cases import CASES
from tests.goldens.samples import in_turns
from transformer_core.models import entry_points, load_model

_NAMES = ("llama_gqa", "qwen3_moe_mixed_4x", "qwen3_next", "gemma3", "olmo2", "deepseek_v3")


class Last:
    """Chooses what is least like the heuristic: the last candidate."""

    def choose(self, inv: Invocation[Any, Any], kernel: Kernel[Any, Any]) -> Any:
        """A configuration."""
        return list(kernel.candidate_cfgs(inv))[-1]


def _points(name: str, directory: Path) -> tuple[EntryPoint, ...]:
    (directory / "config.json").write_text(json.dumps(CASES[name].config))
    model = load_model(directory)
    return entry_points(model, names=model.ENTRY_POINTS, sequence=70, max_sequence=90)


def _with_kernels(points: Sequence[EntryPoint], chooser: Any) -> list[EntryPoint]:
    executor = Executor(chooser)
    return [in_kernels(point, composite_kernels(), executor) for point in points]


def _text(points: Sequence[EntryPoint], streaming: bool = True) -> str:
    pieces: list[str] = []
    lower_module(points, pieces.append, ExternalParameters(), streaming=streaming)
    return "".join(pieces)


def _code(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.lstrip().startswith("//")]


@pytest.mark.parametrize("name", _NAMES)
def test_what_heuristics_choose_is_the_models_own_text_with_labels(name: str, tmp_path: Path) -> None:
    points = _points(name, tmp_path)
    plain, chosen = _text(points), _text(_with_kernels(points, ConfigSelectorChain(policy="heuristics")))
    assert _code(chosen) == _code(plain)
    assert not extract_labels_from_hlo_text(plain)
    ops = {label.partition("#")[2].partition("@")[0] for label in extract_labels_from_hlo_text(chosen)}
    assert {"linear", "rms_norm", "rope"} <= ops


@pytest.mark.parametrize(("name", "chosen"), in_turns(_NAMES, ("guessed", "last")))
def test_streamed_text_is_buffered_text(name: str, chosen: str, tmp_path: Path) -> None:
    chooser = Last() if chosen == "last" else ConfigSelectorChain(policy="heuristics")
    points = _with_kernels(_points(name, tmp_path), chooser)
    streamed = _text(points, streaming=True)
    assert streamed == _text(points, streaming=False)
    plain = _code(_text(_points(name, tmp_path)))
    assert (_code(streamed) == plain) is (chosen != "last")


_BLOCKS = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


@pytest.mark.parametrize("encoding", ["q8_0", "q4_0"])
def test_packed_weights_are_kernels_calls_too(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CASES["llama_gqa"].config, **_BLOCKS}))
    model = load_model(tmp_path, quantize=encoding)
    points = entry_points(model, names=model.ENTRY_POINTS, sequence=70, max_sequence=90)
    plain, chosen = _text(points), _text(_with_kernels(points, ConfigSelectorChain(policy="heuristics")))
    assert _code(chosen) == _code(plain)
    last = _with_kernels(points, Last())
    text = _text(last)
    assert text == _text(last, streaming=False)
    assert "i8" in text
    assert {"linear", "rms_norm", "rope"} <= {
        label.partition("#")[2].partition("@")[0] for label in extract_labels_from_hlo_text(text)
    }
    shared = ["call @packed_linear" in line for line in _code(plain)]
    assert any(shared), "plain products go to the shared function"
    assert not any("packed_linear" in line for line in _code(text)), "the last candidate unpacks the weight instead"


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "buffered"])
def test_every_private_function_has_one_record(streaming: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CASES["llama_gqa"].config, **_BLOCKS}))
    model = load_model(tmp_path, "bf16", quantize="q4_0")
    points = entry_points(model, names=model.ENTRY_POINTS, sequence=8, max_sequence=32)
    pieces: list[str] = []
    lowered = lower_module(points, pieces.append, ExternalParameters(), streaming=streaming)
    text = "".join(pieces)
    records = {function.name: function for function in (*lowered.kernels, *lowered.helpers)}
    heads = re.findall(r"func\.func private @([\w.]+)\((.*)\) -> \((.*)\) ", text)
    assert list(records) == [name for name, _, _ in heads]
    for name, arguments, results in heads:
        function = records[name]
        assert re.findall(r"tensor<.*?>", arguments) == [tensor_type(given.spec) for given in function.arguments]
        assert results.split(", ") == [tensor_type(result.spec) for result in function.results]
        assert function.call_sites == len(re.findall(rf" (?:func\.)?call @{re.escape(name)}\(", text)) > 0
    assert {function.kind for function in lowered.kernels} == {"block"}
    packed = [function for function in lowered.helpers if function.kind == "packed_linear"]
    assert {function.attributes["encoding"] for function in packed} == {"q4_0"}
    assert packed[0].source.startswith("model.layers.0.self_attn.")


def test_a_zero_centred_norm_before_a_packed_product_is_one_function_with_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CASES["gemma3"].config, **_BLOCKS}))
    model = load_model(tmp_path, "bf16", quantize="q4_0")
    pieces: list[str] = []
    lowered = lower_module(entry_points(model, sequence=8), pieces.append, ExternalParameters(), streaming=True)
    norms = [function for function in lowered.helpers if function.kind == "rms_norm_quantize"]
    assert {function.attributes["centred"] for function in norms} == {True}


def test_alike_layers_stay_one_function(tmp_path: Path) -> None:
    """A choice depends on the call alone, so what was one block function for all layers is one with kernels, too."""
    points = _points("llama_gqa", tmp_path)
    counts = [_text(point).count("func.func private") for point in (points, _with_kernels(points, Last()))]
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "buffered"])
@pytest.mark.parametrize("name", ["llama_gqa", "qwen3_next"])
def test_blocks_that_are_written_in_place_have_the_signatures_of_their_functions(
    name: str, streaming: bool, tmp_path: Path
) -> None:
    points = _points(name, tmp_path)
    pieces: list[str] = []
    inlined = lower_module(points, pieces.append, ExternalParameters(), streaming=streaming, block_functions=False)
    called = lower_module(points, lambda _: None, ExternalParameters(), streaming=streaming)
    assert inlined.kernels == called.kernels
    assert len(inlined.kernels) > 1
    text = "".join(pieces)
    assert "func.func private @block." not in text
    for helper in inlined.helpers:
        assert helper.call_sites == len(re.findall(rf" (?:func\.)?call @{re.escape(helper.name)}\(", text)) > 0
