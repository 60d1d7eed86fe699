"""Models in GGUF files are those of the checkpoints that they were made from."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from lang_core import EagerExecutionContext, WeightSource
from tests.goldens.cases import CASES, GoldenCase
from tests.goldens.gguf_cases import AS_THEY_ARE, GGUF_CASES
from tests.goldens.gguf_files import write_gguf
from tests.goldens.golden_files import read_golden
from tests.goldens.weights import write_checkpoint
from tests.parity._golden_models import relative_error
from transformer_core import RopeMode
from transformer_core.checkpoints import SafetensorsCheckpoint, audit
from transformer_core.models import DecoderLM, load_config, stored_specs, tied_keys, unused_keys, weights_of
from transformer_core.models.gguf import GgufModel

_TOLERANCE = 2e-4  # of the greatest logit


def _logits(model: DecoderLM, weights: WeightSource, case: GoldenCase) -> np.ndarray:
    prompt: Any = np.array(case.prompt, np.int32)
    return model(EagerExecutionContext(weights), prompt).numpy()


@pytest.mark.parametrize("name", GGUF_CASES)
def test_configuration_and_weights_are_the_checkpoints(name: str, tmp_path: Path) -> None:
    case = GGUF_CASES[name]
    write_checkpoint(tmp_path, case)
    write_gguf(tmp_path / "model.gguf", case)
    with GgufModel(tmp_path / "model.gguf") as file, SafetensorsCheckpoint(tmp_path) as checkpoint:
        expected, actual = load_config(tmp_path), file.config()
        # f32 in the file, f64 in config.json
        rounded = any(kind in str(case.config) for kind in ("llama3", "longrope"))
        alike: dict[str, Any] = {"rope": expected.rope} if rounded else {}
        assert dataclasses.replace(actual.rope, scaling=expected.rope.scaling) == expected.rope
        assert dataclasses.replace(actual, **alike) == dataclasses.replace(expected, eos_token_ids=actual.eos_token_ids)
        model = DecoderLM(actual)
        audited = audit(
            file, stored_specs(model, file), tied=tied_keys(model, file), ignorable=unused_keys(model, file)
        )
        assert set(audited.used) | set(audited.ignored) == set(file.keys())
        ours, theirs = weights_of(model, file), weights_of(DecoderLM(expected), checkpoint)
        for path, parameter in model.named_parameters():
            wanted, rows = theirs.read(path), (parameter.spec.shape or (1,))[0]
            if expected.zero_centred and path.endswith("norm.weight"):  # the sum was rounded in the file
                wanted = (wanted.astype(np.float32) + np.float32(1)) - np.float32(1)
            if path.endswith(".A_log"):  # of which the file has the exponential
                np.testing.assert_allclose(ours.read(path), wanted, rtol=1e-5, atol=1e-6)
                continue
            assert ours.read(path).tobytes() == wanted.astype(ours.spec(path).dtype.numpy).tobytes(), path
            if not parameter.spec.shape:
                continue
            some = slice(rows // 3, rows // 3 + rows // 2)
            assert ours.read_rows(path, some.start, some.stop).tobytes() == ours.read(path)[some].tobytes(), path
        logits = _logits(model, ours, case)
    if name in AS_THEY_ARE:
        assert relative_error(logits, read_golden(name).prompt_logits) < _TOLERANCE
    with SafetensorsCheckpoint(tmp_path) as checkpoint:
        other = _logits(DecoderLM(expected), weights_of(DecoderLM(expected), checkpoint), case)
    # The weights are the same bits, but matrices that lie otherwise in memory may be multiplied in another order.
    if rounded or not expected.zero_centred:
        assert relative_error(logits, other) < 1e-5


@pytest.mark.parametrize("name", ["llama_gqa", "llama_biases", "granite", "llama_llama3"])
def test_rows_kept_as_stored_with_interleaved_rope(name: str, tmp_path: Path) -> None:
    """The other way to run a permuted file; with the wrong layout, logits are far off."""
    case, golden = CASES[name], read_golden(name)
    write_gguf(tmp_path / "model.gguf", case)
    with GgufModel(tmp_path / "model.gguf") as file:
        halves, pairs = DecoderLM(file.config()), DecoderLM(file.config(RopeMode.INTERLEAVED))
        assert pairs.config.rope.mode is RopeMode.INTERLEAVED
        turned, kept = weights_of(halves, file), weights_of(pairs, file)
        for part in "qk":
            path = f"model.layers.0.self_attn.{part}_proj.weight"
            np.testing.assert_array_equal(kept.read(path), file.read(f"blk.0.attn_{part}.weight"))
            assert not np.array_equal(turned.read(path), kept.read(path))
        assert relative_error(_logits(pairs, kept, case), golden.prompt_logits) < _TOLERANCE
        for model, weights in ((halves, kept), (pairs, turned)):
            assert relative_error(_logits(model, weights, case), golden.prompt_logits) > 1e-2


def _packed(config: dict[str, Any]) -> GoldenCase:
    return dataclasses.replace(CASES["llama_gqa"], config={**CASES["llama_gqa"].config, **config})


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1"])
def test_packed_matrices_are_unpacked_by_the_reference(kind: str, tmp_path: Path) -> None:
    """Also where rows are permuted: they are whole blocks."""
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "head_dim": 16}
    case = _packed({**sizes, "num_key_value_heads": 2})
    packed = GGMLQuantizationType[kind]
    stored = write_gguf(tmp_path / "model.gguf", case, pack=lambda key, shape: packed)
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config())
        weights = weights_of(model, file)
        assert weights.encoding("model.layers.0.mlp.down_proj.weight") == kind.lower()
        assert weights.encoding("model.layers.0.input_layernorm.weight") is None
        np.testing.assert_array_equal(weights.read("model.embed_tokens.weight"), stored["token_embd.weight"])
        for part, heads in {"q": 4, "k": 2}.items():
            actual = weights.read(f"model.layers.1.self_attn.{part}_proj.weight")
            rows = stored[f"blk.1.attn_{part}.weight"].reshape(heads, 8, 2, 64)
            np.testing.assert_array_equal(actual.reshape(heads, 2, 8, 64), rows.swapaxes(1, 2))


def test_fewer_layers_and_what_comes_after_them(tmp_path: Path) -> None:
    case = CASES["llama_mha"]
    write_gguf(tmp_path / "model.gguf", case)
    with GgufModel(tmp_path / "model.gguf") as file:
        model = DecoderLM(file.config(), num_layers=2)
        report = audit(file, stored_specs(model, file), ignorable=unused_keys(model, file))
    assert {key.split(".")[1] for key in report.ignored} == {"2"}


def test_experts_one_by_one(tmp_path: Path) -> None:
    """Splits the experts, as the first GGUF files of Mixtral do."""
    for stack in (True, False):
        write_gguf(tmp_path / f"{stack}.gguf", CASES["mixtral"], stack_experts=stack)
    with GgufModel(tmp_path / "True.gguf") as whole, GgufModel(tmp_path / "False.gguf") as parts:
        assert parts.has("blk.1.ffn_down.4.weight")
        model = DecoderLM(parts.config())
        audit(parts, stored_specs(model, parts), tied=tied_keys(model, parts), ignorable=unused_keys(model, parts))
        actual, expected = weights_of(model, parts), weights_of(model, whole)
        for path, _ in model.named_parameters():
            np.testing.assert_array_equal(actual.read(path), expected.read(path))
