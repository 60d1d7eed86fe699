from typing import Any

import pytest

from lang_core import ConfigError, encoding_named
from transformer_core._packing import pack_weights
from transformer_core.models import DecoderConfig, entry_points
from transformer_core.models.vision_language._internvl import InternVLConfig
from transformer_core.models.vision_language._llava import LlavaConfig
from transformer_core.models.vision_language._smolvlm import PixelShuffle, SmolVLM, SmolVLMConfig

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


def _read(**changes: Any) -> SmolVLMConfig:
    values = {
        "architectures": ["SmolVLMForConditionalGeneration"],
        "image_token_id": 7,
        "scale_factor": 3,
        "text_config": _TEXT,
        "vision_config": _VISION,
    }
    config = DecoderConfig.from_hf({**values, **changes})
    assert isinstance(config, SmolVLMConfig)
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
    assert isinstance(first, SmolVLMConfig)
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
    model = SmolVLM(_read())
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
    plain, packed = SmolVLM(_read()), SmolVLM(_read())
    pack_weights(packed, encoding_named("q8_0"), packed.dtype)
    projector = packed.connector
    assert isinstance(projector, PixelShuffle)
    assert projector.proj.weight.encoding is None  # rows of 144
    embedding = dict(packed.named_parameters())["model.embed_tokens.weight"]
    assert embedding.encoding is not None
    for one, other in zip(entry_points(plain, sequence=8), entry_points(packed, sequence=8), strict=True):
        assert [(argument.name, argument.spec) for argument in one.arguments] == [
            (argument.name, argument.spec) for argument in other.arguments
        ]


_QWEN2 = {**_TEXT, "model_type": "qwen2"}


def _read_llava(**changes: Any) -> LlavaConfig:
    vision = {**_VISION, "hidden_act": "quick_gelu", "model_type": "clip_vision_model", "num_hidden_layers": 3}
    values = {
        "architectures": ["LlavaForConditionalGeneration"],
        "image_token_index": 7,
        "text_config": _TEXT,
        "vision_config": vision,
    }
    config = DecoderConfig.from_hf({**values, **changes})
    assert isinstance(config, LlavaConfig)
    return config


def test_a_llava_runs_its_towers_layers_up_to_the_state_that_it_takes() -> None:
    config = _read_llava()
    assert (config.image_tokens, config.vision.stack.order, config.dropped) == (36, (0, 1), 1)
    assert _read_llava(vision_feature_layer=3).vision.stack.order == (0, 1, 2)
    full = _read_llava(vision_feature_select_strategy="full", text_config=_QWEN2)
    assert (full.image_tokens, full.decoder, full.qkv_bias) == (37, "Qwen2ForCausalLM", True)
    bare = _read_llava(text_config={"model_type": "llama", "vocab_size": 32064}, image_token_index=None)
    assert (bare.hidden, bare.layers, bare.image_token) == (4096, 32, 32000)
    assert _read_llava(text_config={**_TEXT, "tie_word_embeddings": True}).tied


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"vision_feature_layer": [-2, -5]},
            "'vision_feature_layer': expected the number of one state, -3 to 3, not 0",
        ),
        ({"vision_feature_layer": 0}, "'vision_feature_layer': expected the number of one state"),
        ({"vision_feature_select_strategy": "patch"}, "'vision_feature_select_strategy': expected one of default"),
        ({"text_config": {**_TEXT, "model_type": "gpt2"}}, "text_config: field 'model_type': expected one of llama"),
        (
            {"vision_config": {**_VISION, "model_type": "siglip2_vision_model"}},
            "vision_config: field 'model_type': expected one of",
        ),
        ({"image_token_id": 50}, r"'image_token_id': expected below vocab_size \(50\)"),
    ],
)
def test_llavas_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _read_llava(**changes)


def _read_internvl(**changes: Any) -> InternVLConfig:
    vision = {**_VISION, "model_type": "internvl_vision"}
    values = {
        "architectures": ["InternVLForConditionalGeneration"],
        "image_token_id": 7,
        "text_config": _QWEN2,
        "vision_config": vision,
    }
    config = DecoderConfig.from_hf({**values, **changes})
    assert isinstance(config, InternVLConfig)
    return config


def test_an_internvl_as_transformers_has_it() -> None:
    config = _read_internvl()
    assert (config.image_tokens, config.shuffle, config.tied, config.positions, config.normed) == (
        9,
        2,
        True,
        True,
        False,
    )
    assert (config.vision.stack.qkv_bias, config.vision.stack.layer_scale) == (False, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"downsample_ratio": 1 / 3}, "'downsample_ratio': expected a power of 1 / 2"),
        ({"downsample_ratio": 0.25}, "'image_size': expected a square with a multiple of 4 patches a side"),
        ({"vision_feature_layer": -2}, "'vision_feature_layer': expected -1, the last layer"),
        ({"vision_feature_select_strategy": "full"}, "'vision_feature_select_strategy': expected one of default"),
        ({"vision_config": {**_VISION, "norm_type": "batch"}}, "'norm_type': expected one of layer_norm, rms_norm"),
    ],
)
def test_internvls_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _read_internvl(**changes)


_PIXTRAL = {
    "hidden_size": 16,
    "intermediate_size": 20,
    "model_type": "pixtral",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "patch_size": 4,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_config": {**_PIXTRAL, "num_attention_heads": 3}}, "'num_attention_heads': expected heads of a mult"),
        ({"vision_config": {**_PIXTRAL, "head_dim": 4}}, "'head_dim': expected 8, hidden_size by num_attention_heads"),
        ({"vision_config": {**_PIXTRAL, "model_type": "clip_vision_model"}}, "'model_type': expected one of pixtral"),
        ({"vision_feature_layer": -2}, "'vision_feature_layer': expected -1"),
        ({"image_token_index": 0}, "'image_token_index': expected above 0"),
    ],
)
def test_mistrals_that_are_refused(changes: dict[str, Any], message: str) -> None:
    values = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "image_token_index": 7,
        "text_config": {**_TEXT, "head_dim": 8, "model_type": "mistral"},
        "vision_config": _PIXTRAL,
    }
    assert DecoderConfig.from_hf(values).facts()["vision"]["merge"] == 2
    alone = DecoderConfig.from_hf({**values, "vision_config": None})
    assert "vision" not in alone.facts()
    with pytest.raises(ConfigError, match=message):
        DecoderConfig.from_hf({**values, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_grid_pinpoints": [[24, 30]]}, "'image_grid_pinpoints': expected multiples of the tower's image_size"),
        ({"image_grid_pinpoints": [24, 48]}, "'image_grid_pinpoints': expected a list of heights and widths"),
        ({"vision_feature_select_strategy": "full"}, "expected the patches of a square picture alone"),
        ({"vision_feature_layer": [-9]}, "'vision_feature_layer': expected numbers of states, -4 to 3"),
        ({"vision_feature_layer": [0]}, "'vision_feature_layer': expected a state behind a layer"),
    ],
)
def test_canvases_that_are_refused(changes: dict[str, Any], message: str) -> None:
    vision = {**_VISION, "hidden_act": "quick_gelu", "model_type": "clip_vision_model", "num_hidden_layers": 3}
    values = {
        "architectures": ["LlavaNextForConditionalGeneration"],
        "image_grid_pinpoints": [[24, 48]],
        "image_token_index": 7,
        "text_config": _TEXT,
        "vision_config": vision,
    }
    assert DecoderConfig.from_hf(values).facts()["image_canvases"] == [[24, 48]]
    with pytest.raises(ConfigError, match=message):
        DecoderConfig.from_hf({**values, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_aspect_ratio": "square"}, "'vision_aspect_ratio': expected anyres_max_N with a number N of tiles"),
        ({"vision_aspect_ratio": "anyres_max_0"}, "'vision_aspect_ratio': expected anyres_max_N"),
        ({"vision_aspect_ratio": 9}, "'vision_aspect_ratio': expected anyres_max_N"),
        ({"vision_config": [1]}, "'vision_config'"),
        ({"vision_feature_select_strategy": "default"}, "expected the patches of a square picture alone"),
        ({"text_config": {**_TEXT, "model_type": "llama"}}, "'model_type'"),
    ],
)
def test_one_vision_that_is_refused(changes: dict[str, Any], message: str) -> None:
    values = {
        "architectures": ["LlavaOnevisionForConditionalGeneration"],
        "text_config": {**_TEXT, "model_type": "qwen2", "vocab_size": 152000},
    }
    facts = DecoderConfig.from_hf(values).facts()
    assert facts["image_most_tiles"] == 9
    assert (facts["image_token"], facts["image_tokens"], len(facts["image_canvases"])) == (151646, 729, 36)
    with pytest.raises(ConfigError, match=message):
        DecoderConfig.from_hf({**values, **changes})
