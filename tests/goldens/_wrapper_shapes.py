"""Checkpoints that have more than a decoder: names of the decoder's tensors, and the other models' tensors."""

from collections.abc import Iterator

from tests.goldens._case_types import Config
from tests.goldens._written_shapes import is_written, written_shapes

Shapes = Iterator[tuple[str, tuple[int, ...]]]

# Prefixes of the decoder in files of the hub: the first ones, and all later ones.
_PLACES = {"gemma3": "language_model.model."}
_PLACE = "model.language_model."


def text_of(config: Config) -> Config:
    """Returns the decoder's fields; tied where none are said to be, as in transformers."""
    if "text_config" not in config:
        return config
    return {"tie_word_embeddings": config.get("tie_word_embeddings", True), **config["text_config"]}


def inside(key: str, config: Config) -> str:
    """Returns the stored key of a decoder's tensor in a checkpoint that has further models."""
    if not key.startswith("model."):
        return f"language_model.{key}" if config["model_type"] in _PLACES else key
    return _PLACES.get(config["model_type"], _PLACE) + key.removeprefix("model.")


def other_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Keys and shapes of the other models' tensors."""
    if is_written(config):
        return written_shapes(config, unused=True)
    if config.get("vision_config") is None:
        return {}
    own = {"gemma3": _siglip, "gemma3n": _beside_gemma3n}.get(config["model_type"])
    return {} if own is None else dict(own(config))


def _beside_gemma3n(config: Config) -> Shapes:
    """A few tensors of the other models, and those of keys and values that layers with another's cache do not use."""
    text = config["text_config"]
    d, h, layers = text["hidden_size"], text["head_dim"], text["num_hidden_layers"]
    yield "model.vision_tower.timm_model.conv_stem.conv.weight", (4, 3, 3, 3)
    yield "model.audio_tower.conformer.0.norm.weight", (6,)
    yield "model.embed_vision.embedding.weight", (4, 6)
    yield "model.embed_audio.embedding_projection.weight", (d, 6)
    for layer in range(layers - text["num_kv_shared_layers"], layers):
        prefix = f"model.language_model.layers.{layer}.self_attn."
        for letter in "kv":
            yield f"{prefix}{letter}_proj.weight", (text["num_key_value_heads"] * h, d)
        yield prefix + "k_norm.weight", (h,)


def _siglip(config: Config) -> Shapes:
    vision, d = config["vision_config"], config["text_config"]["hidden_size"]
    width, inner, patch = (vision[name] for name in ("hidden_size", "intermediate_size", "patch_size"))
    tower = "vision_tower.vision_model."
    yield tower + "embeddings.patch_embedding.weight", (width, 3, patch, patch)
    yield tower + "embeddings.patch_embedding.bias", (width,)
    yield tower + "embeddings.position_embedding.weight", ((vision["image_size"] // patch) ** 2, width)
    for layer in range(vision["num_hidden_layers"]):
        prefix = f"{tower}encoder.layers.{layer}."
        matrices = [(f"self_attn.{name}_proj", width, width) for name in ("k", "v", "q", "out")]
        for name, out, given in (*matrices, ("mlp.fc1", inner, width), ("mlp.fc2", width, inner)):
            yield f"{prefix}{name}.weight", (out, given)
            yield f"{prefix}{name}.bias", (out,)
        for name in ("layer_norm1", "layer_norm2"):
            yield f"{prefix}{name}.weight", (width,)
            yield f"{prefix}{name}.bias", (width,)
    yield tower + "post_layernorm.weight", (width,)
    yield tower + "post_layernorm.bias", (width,)
    yield "multi_modal_projector.mm_input_projection_weight", (width, d)
    yield "multi_modal_projector.mm_soft_emb_norm.weight", (width,)
