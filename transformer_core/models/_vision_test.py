from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core.family._model import entry_points
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._weights_testing import context_of
from transformer_core.models._tiny_testing import sizes_of
from transformer_core.models.encoders import (
    PairConfig,
    SiglipModel,
    SiglipVisionModel,
    VisionConfig,
    ViTForImageClassification,
    ViTModel,
)
from transformer_core.models.encoders._clip import CLIP, ClipConfig
from transformer_core.models.encoders._siglip import SIGLIP_VISION
from transformer_core.models.encoders._siglip_pair import SIGLIP
from transformer_core.models.encoders._vit import VIT, VIT_FOR_IMAGE_CLASSIFICATION

MINIMAL = {
    "hidden_size": 12,
    "image_size": 9,
    "intermediate_size": 20,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "patch_size": 4,
}


def read(family: Any = VIT, **changes: Any) -> VisionConfig:
    """A ``None`` takes a field away."""
    values = {name: value for name, value in {**MINIMAL, **changes}.items() if value is not None}
    return family.read(ConfigFields(values, "dir/config.json"))


def test_what_is_not_said_is_as_transformers_has_it():
    vit, siglip, classifier = read(), read(SIGLIP_VISION), read(VIT_FOR_IMAGE_CLASSIFICATION)
    assert (vit.channels, vit.pooled, vit.labels, vit.tokens, vit.stack.norm_eps) == (3, 12, 0, 5, 1e-12)
    assert (siglip.tokens, siglip.pooled, siglip.stack.norm_eps) == (4, 12, 1e-6)
    assert (vit.stack.activation, siglip.stack.activation) == (Activation.GELU, Activation.GELU_TANH)
    assert (classifier.labels, classifier.pooled) == (2, 0)
    assert read(VIT_FOR_IMAGE_CLASSIFICATION, num_labels=5).labels == 5
    assert read(VIT_FOR_IMAGE_CLASSIFICATION, num_labels=5, id2label={"0": "a", "1": "b", "2": "c"}).labels == 3
    assert read(image_size=[8, 13], patch_size=[2, 3]).tokens == 17
    assert vit.facts()["image"] == [9, 9]


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        (VIT, {"image_size": [9]}, "'image_size': expected an integer of at least 1, or height and width"),
        (VIT, {"image_size": [9, "9"]}, "'image_size': expected .* as a list of two"),
        (VIT, {"patch_size": [3, 0]}, "'patch_size': expected .* as a list of two"),
        (VIT, {"patch_size": None}, "'patch_size' is missing"),
        (VIT, {"patch_size": 10}, r"'patch_size': expected at most image_size \(\[9, 9\]\); found 10"),
        (VIT, {"pooler_act": "relu"}, "'pooler_act': expected one of tanh"),
        (VIT, {"num_attention_heads": 5}, r"'hidden_size': expected a multiple of num_attention_heads \(5\)"),
        (VIT_FOR_IMAGE_CLASSIFICATION, {"id2label": {}}, "'id2label': expected one name at least"),
        (SIGLIP_VISION, {"vision_use_head": 1}, "'vision_use_head': expected true or false"),
        (SIGLIP_VISION, {"num_channels": 0}, "'num_channels': expected an integer of at least 1"),
    ],
)
def test_what_is_not_supported_is_refused(family, changes, message):
    with pytest.raises(ConfigError, match=message):
        read(family, **changes)


@pytest.mark.parametrize(
    ("model", "results"),
    [
        (ViTModel(read(image_size=[9, 13])), {"last_hidden_state": (2, 7, 12), "pooler_output": (2, 12)}),
        (
            ViTModel(read(pooler_output_size=6), num_layers=1),
            {"last_hidden_state": (2, 5, 12), "pooler_output": (2, 6)},
        ),
        (ViTForImageClassification(read(VIT_FOR_IMAGE_CLASSIFICATION)), {"logits": (2, 2)}),
        (SiglipVisionModel(read(SIGLIP_VISION, vision_use_head=False)), {"last_hidden_state": (2, 4, 12)}),
    ],
)
def test_arguments_and_results(model, results):
    (point,) = entry_points(model, batch=2)
    (argument,) = point.arguments
    assert (argument.name, argument.spec.shape) == ("pixel_values", (2, 3, *model.config.image))
    actual = point(context_of(model), np.ones(argument.spec.shape, np.float32))  # pyright: ignore[reportArgumentType]
    assert {name: tensor.shape for name, tensor in actual.items()} == results


def test_sizes():
    model = ViTModel(read())
    assert model.default_profile(3, None, None) == model.default_profile(3, 5, 5)
    assert sizes_of(model, 3, None, None) == (3, 5, 5)
    with pytest.raises(ConfigError, match="sequence: pictures of 9 x 9 pixels have 5 tokens; found 64: leave it out"):
        entry_points(model, sequence=64)
    with pytest.raises(ConfigError, match="max_sequence: pictures of 9 x 9 pixels have 5 tokens; found 6"):
        entry_points(model, max_sequence=6)


def read_pair(text: Any = None, vision: Any = None) -> PairConfig:
    sizes = {"num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 9, "hidden_size": 6}
    values = {
        "text_config": {**sizes, "projection_size": 12, "vocab_size": 31, **(text or {})},
        "vision_config": {**MINIMAL, **(vision or {})},
    }
    return SIGLIP.read(ConfigFields(values, "dir/config.json"))


def test_a_pairs_inner_configurations_leave_out_what_is_as_transformers_has_it():
    config = SIGLIP.read(ConfigFields({"text_config": {}, "vision_config": {}}, ""))
    assert (config.vocabulary, config.positions, config.stack.hidden, config.layers) == (32000, 64, 768, 12)
    assert (config.vision.image, config.vision.patch, config.vision.tokens) == ((224, 224), (16, 16), 196)
    small = read_pair()
    assert (small.layers, small.first_layers(1).vision.layers, small.facts()["text_layers"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("text", "vision", "message"),
    [
        ({"projection_size": 6}, {}, r"text_config: field 'projection_size': expected hidden_size of vision_config"),
        ({}, {"vision_use_head": False}, "vision_config: field 'vision_use_head': expected true"),
        ({}, {"hidden_size": 13}, "vision_config: field 'hidden_size': expected a multiple"),
        ({"vocab_size": "many"}, {}, "text_config: field 'vocab_size': expected an integer"),
    ],
)
def test_pairs_that_are_refused(text, vision, message):
    with pytest.raises(ConfigError, match=message):
        read_pair(text, vision)


def test_entry_points_of_a_pair():
    model = SiglipModel(read_pair())
    assert [point.name for point in entry_points(model)] == ["encode_image", "encode_text", "score_pairs"]
    assert sizes_of(model, 1, None, None) == (1, 64, 64)
    with pytest.raises(ConfigError, match="sequence: expected at most 64, the positions that have embeddings"):
        entry_points(model, sequence=65)
    ctx = context_of(model)
    for point in entry_points(model, names=["encode_image", "encode_text"], batch=3):
        inputs = [ctx.constant(np.ones(a.spec.shape, a.spec.dtype.numpy)) for a in point.arguments]
        (vectors,) = (tensor.numpy() for tensor in point(ctx, *inputs).values())
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), np.ones(3), rtol=1e-5)


def read_clip(**changes: Any) -> ClipConfig:
    text = {
        "hidden_size": 12,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "vocab_size": 9,
    }
    vision = {**text, "image_size": 8, "patch_size": 4}
    values = {"architectures": ["CLIPModel"], "text_config": text, "vision_config": vision, **changes}
    return CLIP.read(ConfigFields(values, "dir/config.json"))


def test_clip_as_transformers_has_it():
    config = read_clip(text_config_dict={"vocab_size": 9})
    assert (config.end, config.projected, config.positions, config.vision.tokens) == (49407, 512, 77, 5)
    assert config.stack.activation is Activation.QUICK_GELU
    assert read_clip(text_config={"eos_token_id": 2}).end is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config_dict": {"vocab_size": 10}}, "'text_config_dict': expected the same as text_config, or no such"),
        ({"vision_config": {"image_size": [8, 4], "patch_size": 4}}, "'image_size': expected a square; found"),
        ({"text_config": {"num_attention_heads": 5}}, r"'hidden_size': expected a multiple of num_attention_heads"),
        ({"projection_dim": 0}, "'projection_dim': expected an integer of at least 1"),
    ],
)
def test_what_clip_does_not_support(changes, message):
    with pytest.raises(ConfigError, match=message):
        read_clip(**changes)
