"""Qwen3-Next, Qwen3.5 and prediction heads in GGUF files are those of the checkpoints that they were made from."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from lang_core import EagerExecutionContext
from tests.goldens._case_types import GoldenCase
from tests.goldens.cases import CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import read_golden
from tests.goldens.mtp_cases import golden_path, mtp_weights
from tests.goldens.weights import stored_weights
from tests.parity._golden_models import empty_caches, relative_error
from transformer_core import HeadOrder, keep_packed
from transformer_core.checkpoints import audit
from transformer_core.models import (
    DecoderLM,
    DeltaConfig,
    DraftingLM,
    entry_points,
    stored_encodings,
    stored_specs,
    tied_keys,
    unused_keys,
    weights_of,
)
from transformer_core.models.gguf import GgufModel

_TOLERANCE = 2e-4
_NAMES = ("qwen3_next", "qwen3_next_mixed_4x", "qwen3_5", "qwen3_5_published", "qwen3_5_moe")


def _case(name: str, **changes: Any) -> GoldenCase:
    """Experts are everywhere in llama.cpp, and chosen ones are normalised."""
    config = {**CASES[name].config, **changes}
    if name == "qwen3_next_mixed_4x":
        config |= {"mlp_only_layers": [], "norm_topk_prob": True, "attention_bias": False}
    return dataclasses.replace(CASES[name], config=config)


@contextmanager
def _opened(case: GoldenCase, path: Path, **options: Any) -> Iterator[GgufModel]:
    write_gguf(path / "model.gguf", case, **options)
    with GgufModel(path / "model.gguf") as file:
        yield file


def _audited(model: DecoderLM, file: GgufModel) -> None:
    specs, tied = stored_specs(model, file), tied_keys(model, file)
    report = audit(file, specs, tied=tied, ignorable=unused_keys(model, file))
    assert set(report.used) | set(report.ignored) == set(file.keys())


@pytest.mark.parametrize("name", _NAMES)
def test_logits_are_transformers(name: str, tmp_path: Path) -> None:
    case = _case(name)
    prompt: Any = np.array(case.prompt, np.int32)
    with _opened(case, tmp_path) as file:
        config = file.config()
        model = DecoderLM(config)
        _audited(model, file)
        ours = weights_of(model, file)
        logits = model(EagerExecutionContext(ours), prompt)
        for path, parameter in model.named_parameters():
            some = slice(parameter.spec.shape[0] // 3, parameter.spec.shape[0] // 2)
            assert ours.read_rows(path, some.start, some.stop).tobytes() == ours.read(path)[some].tobytes(), path
    mixer = config.mixer
    assert isinstance(mixer, DeltaConfig)
    reordered = name.startswith("qwen3_5") and mixer.key_heads != mixer.value_heads
    assert mixer.order is (HeadOrder.TILED if reordered else HeadOrder.CONSECUTIVE)
    if name != "qwen3_next_mixed_4x":
        assert relative_error(logits, read_golden(name).prompt_logits) < _TOLERANCE
    else:
        assert np.isfinite(logits.numpy()).all()


def test_qwen3_next_has_the_checkpoints_bits(tmp_path: Path) -> None:
    case = _case("qwen3_next")
    weights = stored_weights(case)
    with _opened(case, tmp_path) as file:
        ours = weights_of(DecoderLM(file.config()), file)
        for part in ("in_proj_qkvz.weight", "in_proj_ba.weight", "conv1d.weight", "out_proj.weight", "norm.weight"):
            path = f"model.layers.1.linear_attn.{part}"
            np.testing.assert_array_equal(ours.read(path), weights[path])
        for part in ("A_log", "dt_bias"):
            path = f"model.layers.1.linear_attn.{part}"
            np.testing.assert_allclose(ours.read(path), weights[path], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5"])
def test_matrices_stay_packed(name: str, tmp_path: Path) -> None:
    """Also those whose heads the file has in another order: of Qwen3.5 they are kept in that of the file."""
    sizes = {"hidden_size": 64, "linear_key_head_dim": 32, "linear_value_head_dim": 32, "head_dim": 32}
    case = _case(name, **sizes)
    pack = GGMLQuantizationType.Q8_0
    with _opened(case, tmp_path, pack=lambda key, shape: pack if shape[-1] % 32 == 0 else None) as file:
        model = DecoderLM(file.config())
        encodings = stored_encodings(model, file)
        parts = ["in_proj_qkvz", "in_proj_ba"] if name == "qwen3_next" else ["in_proj_qkv", "in_proj_z", "in_proj_a"]
        for part in (*parts, "out_proj"):
            assert encodings[f"model.layers.0.linear_attn.{part}.weight"].name == "q8_0", part
        plain: Any = DecoderLM(file.config())(EagerExecutionContext(weights_of(model, file)), _prompt(case))
        assert keep_packed(model, encodings, model.dtype, "exact", required=True)
        packed: Any = model(EagerExecutionContext(weights_of(model, file)), _prompt(case))
    assert relative_error(packed, plain.numpy()) < 1e-4


def _prompt(case: GoldenCase) -> Any:
    return np.array(case.prompt, np.int32)


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_5", "glm4_moe"])
def test_a_prediction_head_is_ignored_or_drafts(name: str, tmp_path: Path) -> None:
    case = _case(name, num_nextn_predict_layers=1)
    with (
        _opened(case, tmp_path, weights={**stored_weights(case), **mtp_weights(case)}) as file,
        np.load(golden_path(name)) as golden,
    ):
        config = file.config()
        assert (config.layers, config.extra_layers, config.prediction_heads) == (case.config["num_hidden_layers"], 1, 1)
        _audited(DecoderLM(config), file)
        model = DraftingLM(config)
        _audited(model, file)
        tokens, ctx = golden["tokens"], EagerExecutionContext(weights_of(model, file))
        prefill, draft = entry_points(model, names=("prefill", "draft"), sequence=6, max_sequence=12)
        zero, five, six = (np.array(number, np.int32) for number in (0, 5, 6))
        given: Any = [tokens[:, :6], zero, five, *empty_caches(prefill)]
        _, *caches, _ = prefill(ctx, *given).values()
        drafted: Any = draft(ctx, *[tokens[:, 6:7], six], *caches)["logits"]
        assert relative_error(drafted[0] if isinstance(drafted, np.ndarray) else drafted, golden["logits"][:, 5]) < 2e-4
