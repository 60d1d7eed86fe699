from typing import Any

import pytest

from lang_core import ConfigError, encoding_named
from transformer_core._packing import pack_weights
from transformer_core.models import DecoderConfig, VisionLanguageConfig, VisionLanguageLM, entry_points

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 50,
}
_VISION = {
    "hidden_size": 16,
    "image_size": 24,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "patch_size": 4,
}


def _read(**changes: Any) -> VisionLanguageConfig:
    values = {
        "architectures": ["SmolVLMForConditionalGeneration"],
        "image_token_id": 7,
        "scale_factor": 3,
        "text_config": _TEXT,
        "vision_config": _VISION,
    }
    config = DecoderConfig.from_hf({**values, **changes})
    assert isinstance(config, VisionLanguageConfig)
    return config


def test_what_is_not_said_is_as_transformers_has_it() -> None:
    config = _read()
    assert (config.tied, config.vision.channels, config.vision.stack.norm_eps, config.image_tokens) == (
        False,
        3,
        1e-6,
        4,
    )
    assert _read(scale_factor=None).shuffle == 2
    assert _read(text_config={**_TEXT, "tie_word_embeddings": True}).tied is False
    assert _read(tie_word_embeddings=True).tied
    facts = config.facts()
    assert (facts["image_token"], facts["image_tokens"], facts["vision"]["image"]) == (7, 4, [24, 24])
    first = config.first_layers(1)
    assert isinstance(first, VisionLanguageConfig)
    assert (first.layers, first.image_token) == (1, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": None}, "field 'text_config' is missing"),
        ({"text_config": {**_TEXT, "model_type": "mistral"}}, "text_config: field 'model_type': expected one of llama"),
        ({"scale_factor": 4}, "'scale_factor': expected a divisor of the 6 patches of a side"),
        ({"image_token_id": 50}, r"'image_token_id': expected below vocab_size \(50\)"),
        ({"image_token_id": None}, r"'image_token_id': expected below vocab_size \(50\)"),
        ({"vision_config": {**_VISION, "image_size": [24, 28]}}, "'image_size': expected a square of square patches"),
        (
            {"vision_config": {**_VISION, "image_size": 100}},
            "'patch_size': expected one with which a side has at most 64",
        ),
        (
            {"vision_config": {**_VISION, "image_size": 400}},
            "'patch_size': expected one with which a side has at most 64",
        ),
        ({"vision_config": {**_VISION, "hidden_act": "sine"}}, "'hidden_act': expected one of"),
    ],
)
def test_what_is_not_supported_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _read(**changes)


def test_entry_points() -> None:
    model = VisionLanguageLM(_read())
    points = {point.name: point for point in entry_points(model, sequence=8, max_sequence=32)}
    assert list(points) == ["encode_image", "prefill_embeddings", "prefill", "decode"]
    arguments = [argument.name for argument in points["prefill_embeddings"].arguments]
    plain = [argument.name for argument in points["prefill"].arguments]
    assert arguments == ["token_ids", "embeddings", *plain[1:]]
    several = entry_points(
        model, names=["encode_image", "prefill_embeddings"], batch=3, positions="per_row", sequence=8
    )
    assert [several[0].arguments[0].spec.shape, several[1].arguments[1].spec.shape] == [(3, 3, 24, 24), (3, 8, 32)]


def test_packed_weights_change_no_argument() -> None:
    plain, packed = VisionLanguageLM(_read()), VisionLanguageLM(_read())
    pack_weights(packed, encoding_named("q8_0"), packed.dtype)
    assert packed.connector.proj.weight.encoding is None  # rows of 144
    embedding = dict(packed.named_parameters())["model.embed_tokens.weight"]
    assert embedding.encoding is not None
    for one, other in zip(entry_points(plain, sequence=8), entry_points(packed, sequence=8), strict=True):
        assert [(argument.name, argument.spec) for argument in one.arguments] == [
            (argument.name, argument.spec) for argument in other.arguments
        ]
