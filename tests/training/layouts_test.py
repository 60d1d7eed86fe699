"""Layouts of families: what training writes is what the checkpoint had, and an adapter changes what PEFT's would."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, Module, WeightSource
from tapeline.finetuning import adapted_modules, changes_of, first_values, write_adapter
from tests.goldens.cases import CASES
from tests.goldens.weights import write_checkpoint
from transformer_core.checkpoints import Adapter, SafetensorsCheckpoint
from transformer_core.models import DecoderLM, StoredLayout, load_model, weights_of
from transformer_core.training import low_rank_linears

_LONG = os.environ.get("TAPELINE_LONG") == "1"
_SOME = (
    "llama_tied", "phi3_window_4x", "gpt2", "gpt_neox", "mixtral", "gpt_oss", "qwen3_next", "gemma3_wrapped_4x",
    "deepseek_v2", "falcon_h1", "granite_hybrid", "glm4", "lfm2", "ernie4_5_moe", "llama4",
)  # fmt: skip
_OFFSET = ("opt", "opt_post_norm_4x", "biogpt")  # a checkpoint's table of positions has two rows that no model reads


def _parameters(model: Module, weights: WeightSource) -> dict[str, np.ndarray]:
    ctx = EagerExecutionContext(weights)
    return {path: np.array(ctx.parameter(parameter).data) for path, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", [name for name in CASES if name not in _OFFSET] if _LONG else _SOME)
def test_stored_tensors_come_back(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[name])
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as source:
        layout = StoredLayout(model, source)
        tensors = dict(layout.tensors(_parameters(model, weights_of(model, source))))
        assert set(tensors) == set(layout.specs)
        for key, tensor in tensors.items():
            np.testing.assert_array_equal(tensor, source.read(key), err_msg=key)
        assert set(tensors) <= set(source.keys())


@pytest.mark.parametrize("name", _OFFSET if _LONG else _OFFSET[:1])
def test_a_table_that_is_read_in_part_is_not_trained(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CASES[name])
    model = load_model(tmp_path)
    with SafetensorsCheckpoint(tmp_path) as source:
        layout, parameters = StoredLayout(model, source), _parameters(model, weights_of(model, source))
        with pytest.raises(ConfigError, match=r"a part of .*embed_positions\.weight: .* or train an adapter"):
            dict(layout.tensors(parameters))


# Per case the last parts of the names of the modules that an adapter changes by default.
_ADAPTED: Mapping[str, str] = {
    "llama_gqa": "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj",
    "phi3_longrope_partial": "qkv_proj o_proj gate_up_proj down_proj",
    "gpt2": "c_attn c_proj c_fc",
    "gpt_neox": "query_key_value dense dense_h_to_4h dense_4h_to_h",
    "gemma3": "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj",
}


@pytest.mark.parametrize("name", _ADAPTED)
def test_an_adapter_is_merged_to_what_was_trained(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write_checkpoint(tmp_path, case)
    model = load_model(tmp_path)
    assert isinstance(model, DecoderLM)
    modules = adapted_modules(model, ())
    assert {module.name.rpartition(".")[2] for module in modules} == set(_ADAPTED[name].split())
    rng = np.random.default_rng(1)
    factors = {
        key: array + (0.05 * rng.standard_normal(array.shape)).astype(np.float32)
        for key, array in first_values(modules, 3, 0).items()
    }
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", factors, modules, 3, 6.0, "base")
    prompt = np.array(case.prompt, np.int32)
    with SafetensorsCheckpoint(tmp_path) as source, Adapter(tmp_path / "adapter") as adapter:
        plain = EagerExecutionContext(weights_of(model, source))
        merged = EagerExecutionContext(weights_of(model, source, [adapter]))
        wanted, before = (model(ctx, ctx.constant(prompt)).numpy() for ctx in (merged, plain))
        tensors = {key: plain.constant(array) for key, array in factors.items()}
        with low_rank_linears(plain, changes_of(modules, tensors, 2.0)):
            logits = model(plain, plain.constant(prompt)).numpy()
    assert np.abs(wanted - before).max() > 1e-2
    np.testing.assert_allclose(logits, wanted, atol=1e-5 * np.abs(wanted).max())
