import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family._model import entry_points
from transformer_core.layers._weights_testing import context_of
from transformer_core.models import load_model
from transformer_core.models._tiny_testing import sizes_of
from transformer_core.models.encoders import WhisperConfig, WhisperForConditionalGeneration
from transformer_core.models.encoders._whisper import WHISPER

MINIMAL = {
    "d_model": 12,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 20,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 17,
    "encoder_layers": 3,
    "max_source_positions": 5,
    "max_target_positions": 9,
    "num_mel_bins": 4,
    "vocab_size": 31,
}


def read(**changes: Any) -> WhisperConfig:
    """A ``None`` takes a field away."""
    values = {name: value for name, value in {**MINIMAL, **changes}.items() if value is not None}
    return WHISPER.read(ConfigFields(values, "dir/config.json"))


def test_a_configuration():
    config = read(eos_token_id=7)
    assert (config.layers, config.stack.layers, config.decoder.layers) == (3, 3, 2)
    assert (config.frames, config.eos_token_ids, config.bos_token_id) == (10, (7,), None)
    assert config.facts()["encoder"]["heads"] == 2
    assert (config.facts()["heads"], config.facts()["layers"]) == (3, 3)
    short = config.first_layers(2)
    assert (short.layers, short.stack.layers, short.decoder.layers) == (2, 2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_embedding": True}, "'scale_embedding': expected false, or no such field; found True"),
        ({"tie_word_embeddings": False}, "'tie_word_embeddings': expected true"),
        ({"encoder_attention_heads": 5}, r"'d_model': expected a multiple of encoder_attention_heads \(5\)"),
        ({"decoder_attention_heads": 5}, r"'d_model': expected a multiple of decoder_attention_heads \(5\)"),
        ({"activation_function": "sine"}, "'activation_function': expected one of"),
        ({"num_mel_bins": None}, "'num_mel_bins' is missing"),
    ],
)
def test_what_is_not_supported_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        read(**changes)


def test_sizes():
    model = WhisperForConditionalGeneration(read())
    assert sizes_of(model, 2, None, None) == (2, 9, 9)
    assert sizes_of(model, 2, 3, 8) == (2, 3, 8)
    with pytest.raises(ConfigError, match=r"sequence: expected at most 4, max_sequence \(4\); found 5"):
        entry_points(model, sequence=5, max_sequence=4)
    with pytest.raises(ConfigError, match="max_sequence: expected at most 9, the decoder's positions"):
        entry_points(model, max_sequence=10)
    assert [point.name for point in entry_points(model)] == ["encode", "prefill", "decode"]


def test_forward_is_what_prefill_gives_of_the_last_token():
    model = WhisperForConditionalGeneration(read())
    ctx, random = context_of(model), np.random.default_rng(0)
    forward, encode, prefill = entry_points(model, names=["forward", "encode", "prefill"], batch=2, sequence=6)
    features = ctx.constant(random.standard_normal((2, 4, 10)).astype(np.float32))
    ids = ctx.constant(random.integers(0, 31, (2, 6)).astype(np.int32))
    whole = forward(ctx, features, ids)["logits"].numpy()
    _, *cross = encode(ctx, features).values()
    empty = [ctx.constant(np.zeros(a.spec.shape, np.float32)) for a in prefill.arguments if a.alias_result]
    for last in (5, 2):
        scalars = [ctx.constant(np.array(value, np.int32)) for value in (0, last)]
        actual = prefill(ctx, ids, *scalars, *empty, *cross)["logits"].numpy()
        np.testing.assert_allclose(actual, whole[:, last], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({"decoder_layers": 4}, [[2, 4], [2, 11], [3, 3], [3, 6], [3, 11], [3, 14]]),  # large-v3-turbo
        ({"decoder_layers": 2}, [[1, head] for head in range(20)]),  # distil-large-v3
    ],
)
def test_large_models_with_few_layers_in_the_decoder(
    changes: dict[str, int], heads: list[list[int]], tmp_path: Path
) -> None:
    sizes = {"d_model": 1280, "num_mel_bins": 128, "vocab_size": 51866, "encoder_layers": 32}
    many = {f"{part}_attention_heads": 20 for part in ("encoder", "decoder")}
    widths = {f"{part}_ffn_dim": 5120 for part in ("encoder", "decoder")}
    positions = {"max_source_positions": 1500, "max_target_positions": 448}
    names = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper"}
    fields = {**names, **sizes, **many, **widths, **positions, **changes, "activation_function": "gelu"}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    (tmp_path / "generation_config.json").write_text(json.dumps({"alignment_heads": heads}))
    model = load_model(tmp_path, weights=False)
    points = {point.name: point for point in entry_points(model, names=("encode", "decode", "align"))}
    assert points["encode"].arguments[0].spec.shape == (1, 128, 3000)
    assert points["align"].arguments[0].spec.shape == (1, 448)
    assert points["align"].arguments[-1].name == f"layers.{changes['decoder_layers'] - 1}.cross_key"
