"""Configurations of models that see images of any size, and their entry points."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lang_core import ConfigError, EagerExecutionContext, ExecutionContext, MappingWeights
from transformer_core.family._config import family_of
from transformer_core.models import DecoderConfig, VisionLanguageConfig, entry_points
from transformer_core.models.vision_language._grid_model import GridConfig, GridLM
from transformer_core.models.vision_language._grid_tower import places_of

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {"mrope_section": [2, 1, 1], "type": "mrope"},
    "vocab_size": 50,
}
_QWEN2 = {"depth": 2, "embed_dim": 16, "hidden_size": 32, "num_heads": 2}
_QWEN3 = {
    "deepstack_visual_indexes": [1],
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_heads": 2,
    "num_position_embeddings": 9,
    "out_hidden_size": 32,
}
_QWEN2_5 = {**{k: v for k, v in _QWEN3.items() if k != "num_position_embeddings"}, "window_size": 112}


def _read(architecture: str = "Qwen2VL", **changes: Any) -> GridConfig:
    vision = {"Qwen2VL": _QWEN2, "Qwen2_5_VL": _QWEN2_5, "Qwen3VL": _QWEN3, "Qwen3VLMoe": _QWEN3}[architecture]
    values = {
        "architectures": [f"{architecture}ForConditionalGeneration"],
        "image_token_id": 7,
        "text_config": {**_TEXT, "head_dim": 8} if architecture == "Qwen3VL" else _TEXT,
        "vision_config": vision,
    }
    config = DecoderConfig.from_hf({**values, **changes})
    assert isinstance(config, GridConfig)
    return config


def test_older_files_have_the_decoders_fields_beside_the_towers() -> None:
    flat = DecoderConfig.from_hf(
        {
            "architectures": ["Qwen2VLForConditionalGeneration"],
            "image_token_id": 7,
            "tie_word_embeddings": True,
            "vision_config": {**_QWEN2, "model_type": "qwen2_vl"},
            **_TEXT,
        }
    )
    assert flat == replace(_read(), tied=True)
    assert (flat.rope.sections, flat.rope.base) == ((), 1000000.0)
    assert isinstance(flat, GridConfig)
    assert (flat.image_rope.sections, flat.image_rope.sections_interleaved) == ((2, 1, 1), False)


def test_absent_fields_are_transformers_defaults() -> None:
    config = _read("Qwen2_5_VL")
    assert (config.tower.window, config.tower.whole_layers, config.tower.frames) == (4, (7, 15, 23, 31), 2)
    assert _read("Qwen3VL").tower.patch == (16, 16)
    rows = _read("Qwen3VL", text_config={**_TEXT, "head_dim": 8, "rope_scaling": None}).image_rope
    assert (rows.sections, rows.sections_interleaved, rows.base) == ((2, 1, 1), True, 500000.0)


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("Qwen2VL", {"image_token_id": 50}, r"'image_token_id': expected below vocab_size \(50\)"),
        ("Qwen2VL", {"image_token_id": 0}, "'image_token_id': expected above 0"),
        ("Qwen2VL", {"text_config": {**_TEXT, "use_sliding_window": True}}, "'use_sliding_window': expected false"),
        ("Qwen2VL", {"text_config": {**_TEXT, "rope_scaling": {"mrope_section": [2, 2]}}}, "list of three integers"),
        ("Qwen2VL", {"text_config": {**_TEXT, "rope_scaling": None}}, "'mrope_section': expected three sizes that add"),
        ("Qwen2VL", {"vision_config": {**_QWEN2, "hidden_size": 24}}, "'hidden_size': expected 32, the decoder's"),
        ("Qwen2VL", {"vision_config": {**_QWEN2, "num_heads": 8}}, "'num_heads': expected heads of a multiple of 4"),
        ("Qwen2VL", {"vision_config": {**_QWEN2, "patch_size": [14, 14]}}, "'patch_size': expected an integer"),
        ("Qwen2VL", {"vision_config": {**_QWEN2, "model_type": "clip"}}, "'model_type': expected one of qwen2_vl"),
        ("Qwen2_5_VL", {"vision_config": {**_QWEN2_5, "window_size": 20}}, "'window_size': expected at least the side"),
        (
            "Qwen3VL",
            {"vision_config": {**_QWEN3, "num_position_embeddings": 10}},
            "'num_position_embeddings': expected the square of a number",
        ),
        (
            "Qwen3VL",
            {"vision_config": {**_QWEN3, "deepstack_visual_indexes": [1, 0]}},
            "'deepstack_visual_indexes': expected ascending numbers of layers, up to 3",
        ),
        ("Qwen3VL", {"vision_config": {**_QWEN3, "deepstack_visual_indexes": [2]}}, "ascending numbers of layers"),
        ("Qwen3VL", {"vision_config": {**_QWEN3, "deepstack_visual_indexes": [1, 1]}}, "expected each layer once"),
        ("Qwen3VL", {"vision_config": {**_QWEN3, "deepstack_visual_indexes": 1}}, "expected a list of numbers"),
    ],
)
def test_unsupported_fields_are_refused(architecture: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _read(architecture, **changes)


def test_entry_points() -> None:
    config = _read("Qwen3VL")
    assert config.facts()["vision"]["merge"] == 2
    points = {point.name: point for point in entry_points(GridLM(config), sequence=8, max_sequence=32)}
    images = points["encode_image"].arguments
    assert [(argument.name, argument.spec.shape) for argument in images] == [
        ("pixel_values", (1, 128, 768)),
        ("grid", (1, 2)),
    ]
    assert images[1].bounds == (2, 64)
    caches = [argument for argument in points["decode"].arguments if argument.alias_result]
    assert [cache.spec.shape for cache in caches if "following" in cache.name] == [(1, 1, 32, 1)]
    assert points["prefill_embeddings"].arguments[1].spec.shape == (1, 8, 2 * 32 + 4)
    few = GridLM(config, num_layers=1)
    assert isinstance(few.config, VisionLanguageConfig)
    assert entry_points(few, sequence=8, max_sequence=32)[1].arguments[1].spec.shape == (1, 8, 2 * 32 + 4)


@pytest.fixture
def ctx() -> ExecutionContext:
    return EagerExecutionContext()


def test_patches_come_square_by_square(ctx: ExecutionContext) -> None:
    places = places_of(ctx, ctx.constant(np.array([[2, 6], [4, 2]], np.int32)), 14, 2)
    rows, columns, is_real = (tensor.numpy() for tensor in (places.row, places.column, places.is_real))
    assert rows[0, :12].tolist() == [0, 0, 1, 1] * 3
    assert columns[0, :12].tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5]
    assert (rows[1, :8].tolist(), columns[1, :8].tolist()) == ([0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4)
    assert is_real.sum(1).tolist() == [12, 8]


@pytest.mark.parametrize("projection", ["gate", "up", "down"])
def test_experts_are_stored_in_either_order(projection: str) -> None:
    config = _read(
        "Qwen3VLMoe",
        text_config={
            **_TEXT,
            "moe_intermediate_size": 10,
            "num_experts": 3,
            "num_experts_per_tok": 2,
        },
    )
    recipes = family_of(config).stored
    assert recipes is not None
    above = "model.language_model.layers.0.mlp.experts."
    random = np.random.default_rng(5)
    both = {
        f"{above}gate_up_proj": random.standard_normal((3, 20, 32)).astype(np.float32),
        f"{above}down_proj": random.standard_normal((3, 32, 10)).astype(np.float32),
    }
    published = {key: np.ascontiguousarray(array.swapaxes(1, 2)) for key, array in both.items()}
    shape = (3, 32, 10) if projection == "down" else (3, 10, 32)
    made = []
    for tensors in (both, published):
        source = MappingWeights(tensors)
        recipe = recipes(config)(f"model.layers.0.mlp.experts.{projection}_proj", shape, source)
        assert recipe is not None
        made.append(recipe.rows(source, 1, 3))
    whole = both[f"{above}{'down' if projection == 'down' else 'gate_up'}_proj"]
    expected = whole if projection == "down" else whole[:, :10] if projection == "gate" else whole[:, 10:]
    for rows in made:
        np.testing.assert_array_equal(rows, expected[1:3])
    with pytest.raises(ConfigError, match="'norm_topk_prob': expected true"):
        _read("Qwen3VLMoe", text_config={**_TEXT, "norm_topk_prob": False})
