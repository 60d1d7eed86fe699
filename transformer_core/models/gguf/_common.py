"""Configuration fields that nearly all models in GGUF files share."""

from typing import Any, Final, NamedTuple

from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints.gguf import GgufCheckpoint
from transformer_core.models.gguf._rope import rope_values

_EMBEDDING: Final = "token_embd.weight"
_HEAD: Final = "output.weight"

Values = dict[str, Any]


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


def biased(source: Source, part: str) -> bool:
    """Returns whether a projection has a bias."""
    return source.file.has(f"blk.0.{part}.bias")
