"""Configuration fields that nearly all models in GGUF files share."""

from typing import Any, Final, NamedTuple

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.models.gguf.readers._rope import rope_values

_EMBEDDING: Final = "token_embd.weight"
_HEAD: Final = "output.weight"
_PATTERN: Final = "attention.sliding_window_pattern"
WINDOW: Final = "attention.sliding_window"
CHANGING: Final = (
    "attention.clamp_kqv", "attention.max_alibi_bias", "attention.output_scale", "attention.scale",
    "attention.shared_kv_layers", "attention.temperature_scale", "attn_logit_softcapping", "embedding_scale",
    "expert_count", "expert_group_count",
    "expert_shared_count", "expert_weights_scale", "final_logit_softcapping", "leading_dense_block_count",
    "logit_scale", "nextn_predict_layers", "residual_scale", "use_parallel_residual", WINDOW,
)  # fmt: skip
"""Fields that change what a model computes; a file must not have those that its architecture does not read."""

Values = dict[str, Any]
"""Fields of a configuration by name."""


class Source(NamedTuple):
    """File and the fields that describe its model.

    Attributes:
        file: checkpoint with the tensors.
        fields: metadata fields, without the architecture's name before them.
    """

    file: GgufCheckpoint
    fields: ConfigFields


def vocabulary(source: Source) -> int:
    """Returns V."""
    return source.file.spec(_EMBEDDING).shape[0]


def tied(source: Source) -> bool:
    """Returns whether the embedding is also the head."""
    return not source.file.has(_HEAD)


def common(source: Source, architecture: str, model_type: str, *, layer_norm: bool = False, **more: Any) -> Values:
    """Returns the fields of config.json that nearly all architectures have.

    Args:
        source: file and its fields.
        architecture: Hugging Face's name of the architecture.
        model_type: Hugging Face's model type.
        layer_norm: whether norms are layer norms.
        **more: further fields.

    Raises:
        ConfigError: a field is missing, of the wrong type, or contradicts another.
    """
    file, fields = source
    if layer_norm:
        eps = {"layer_norm_eps": fields.number("attention.layer_norm_epsilon")}
    else:
        eps = {"rms_norm_eps": fields.number("attention.layer_norm_rms_epsilon")}
    heads, hidden = fields.integer("attention.head_count"), fields.integer("embedding_length")
    if not fields.has("attention.key_length") and hidden % heads:
        fields.refuse("embedding_length", f"a multiple of attention.head_count ({heads}), or a field key_length")
    head_size = fields.integer("attention.key_length", hidden // heads)
    if fields.integer("attention.value_length", head_size) != head_size:
        fields.refuse("attention.value_length", f"the same as attention.key_length ({head_size})")
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": vocabulary(source),
        "hidden_size": hidden,
        "intermediate_size": fields.integer("feed_forward_length"),
        "num_hidden_layers": fields.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": fields.integer("attention.head_count_kv", heads),
        "head_dim": head_size,
        **eps,
        "tie_word_embeddings": tied(source),
        **rope_values(file, fields, head_size),
        **more,
    }


def biased(source: Source, part: str, layer: int = 0) -> bool:
    """Returns whether a projection has a bias."""
    return source.file.has(f"blk.{layer}.{part}.bias")


def biases(source: Source) -> Values:
    """Returns which projections have biases."""
    return {"attention_bias": biased(source, "attn_q"), "mlp_bias": biased(source, "ffn_up")}


def window(fields: ConfigFields) -> int | None:
    """Returns the number of keys that a query sees; None for all."""
    return fields.integer(WINDOW, 0, minimum=0) or None


def layer_types(fields: ConfigFields, every: int, *, first: bool = False) -> Values:
    """Returns which layers have windows: all but every n-th, or as the file lists them.

    Args:
        fields: fields of the file.
        every: n, if the file says nothing.
        first: whether the first layer has none, and then every n-th; else the n-th is the first without.
    """
    layers, pattern = fields.integer("block_count"), fields.values.get(_PATTERN, every)
    if isinstance(pattern, list):
        if len(pattern) != layers or not all(isinstance(slides, bool) for slides in pattern):
            fields.refuse(_PATTERN, f"a number, or {layers} (block_count) of true and false")
        slides = pattern
    else:
        every = fields.integer(_PATTERN, every)
        slides = [bool((index + (0 if first else 1)) % every) for index in range(layers)]
    return {"layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in slides]}


def with_fields(source: Source, **values: Any) -> Source:
    """Returns the source with other values of fields; a name may have ``__`` for its dots."""
    changed = {name.replace("__", "."): value for name, value in values.items()}
    return Source(source.file, ConfigFields({**source.fields.values, **changed}, source.fields.where))


def rotated_share(source: Source) -> float:
    """Returns the rotated share of a head, also if it is 1, for families with another default."""
    fields = source.fields
    size = fields.integer("embedding_length") // fields.integer("attention.head_count")
    size = fields.integer("attention.key_length", size)
    return fields.integer("rope.dimension_count", size) / size
