"""Fields of config.json that several families share."""

from collections.abc import Sequence
from typing import Any, Final

from lang_core import ConfigError, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._config import DecoderConfig
from transformer_core.family._switches import refuse_unread_switches
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._rope_config import DEFAULT_BASE, RopeConfig

_SLIDING: Final = "sliding_attention"
_FULL: Final = "full_attention"
_LAYER_TYPES: Final = (_FULL, _SLIDING)
_WINDOW: Final = "sliding_window"
_ACTIVATIONS: Final = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "relu2": Activation.RELU_SQUARED,
    "quick_gelu": Activation.QUICK_GELU,
}
_DEFAULT_WINDOW: Final = 4096  # transformers' default


def llama_kind(fields: ConfigFields, architecture: str, **known: Any) -> DecoderConfig:
    """Reads the configuration of a decoder that differs from a Llama in the ``known`` attributes only.

    It reads the sizes, ``rms_norm_eps``, RoPE, ``hidden_act``, ``tie_word_embeddings`` and the token ids, each unless
    its attribute is known. It refuses an active field of ``SWITCHES`` (biases, windows, experts, scales, caps) without
    a known attribute.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        **known: attributes of ``DecoderConfig`` that the family reads itself.

    Raises:
        ConfigError: a field is missing, of the wrong type, out of range, contradicts another, or changes the result and
            nobody has read it.
    """
    refuse_unread_switches(fields, architecture, known)
    layers = fields.integer("num_hidden_layers")
    sizes: dict[str, Any] = known
    if "heads" not in known:
        heads, kv_heads, head_size = heads_of(fields)
        sizes = {"heads": heads, "kv_heads": kv_heads, "head_size": head_size, **known}
    if "rope" not in known:
        sizes = {**sizes, "rope": whole_rope(fields, architecture, sizes["head_size"])}
    return DecoderConfig(
        **{
            "architecture": architecture,
            "vocabulary": fields.integer("vocab_size"),
            "hidden": fields.integer("hidden_size"),
            **({} if "intermediate" in known else {"intermediate": fields.integer("intermediate_size")}),
            "layers": layers,
            **({} if "norm_eps" in known else {"norm_eps": fields.number("rms_norm_eps")}),
            "windows": (None,) * layers,
            **({} if "activation" in known else {"activation": activation_of(fields, default="silu")}),
            "tied": fields.boolean("tie_word_embeddings", False),
            **token_ids_of(fields),
            **sizes,
        }
    )


@checked_choices
def heads_of(
    fields: ConfigFields, *, kv_heads_default: bool = False, head_dim_needed: bool = False
) -> tuple[int, int, int]:
    """Reads N, K and H.

    Args:
        fields: fields of config.json.
        kv_heads_default: whether K is N if the field is absent; if it is null, it always is.
        head_dim_needed: whether ``head_dim`` is required, because the family's default is not D / N.
    """
    heads = fields.integer("num_attention_heads")
    absent_is_heads = kv_heads_default or "num_key_value_heads" in fields.values
    kv_heads = fields.integer("num_key_value_heads", heads if absent_is_heads else None)
    if heads % kv_heads:
        fields.refuse("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    hidden = fields.integer("hidden_size")
    if head_dim_needed or fields.has("head_dim"):
        return heads, kv_heads, fields.integer("head_dim")
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads ({heads}), or a field head_dim")
    return heads, kv_heads, hidden // heads


def whole_rope(
    fields: ConfigFields, architecture: str, head_size: int, *, default_base: float = DEFAULT_BASE
) -> RopeConfig:
    """Reads a RoPE over whole heads.

    Raises:
        ConfigError: the file rotates a part of a head, or by several positions.
    """
    rope = RopeConfig.from_hf(fields, head_size, default_base)
    if rope.rotated != head_size or rope.sections:
        raise ConfigError(
            f"{fields.where}: {architecture} rotates whole heads by one position: expected no partial_rotary_factor "
            f"below 1 and no mrope_section; found {rope.rotated} of {head_size} dims, sections {list(rope.sections)}"
        )
    return rope


def activation_of(fields: ConfigFields, name: str = "hidden_act", default: str | None = None) -> Activation:
    """Reads an activation under transformers' name."""
    return _ACTIVATIONS[fields.choice(name, _ACTIVATIONS, default)]


def optional_number(fields: ConfigFields, name: str, default: float | None) -> float | None:
    """Reads a number above 0; ``default`` if the field is absent, None if it is null."""
    if name in fields.values and fields.values[name] is None:
        return None
    return default if default is None and not fields.has(name) else fields.number(name, default)


def one_window(fields: ConfigFields, *, default: int | None = _DEFAULT_WINDOW) -> tuple[int | None, ...]:
    """Reads ``sliding_window`` for every layer: ``default`` if it is absent, none if it is null (Mistral)."""
    layers = fields.integer("num_hidden_layers")
    absent = _WINDOW not in fields.values
    if (absent and default is None) or (not absent and fields.values[_WINDOW] is None):
        return (None,) * layers
    return (fields.integer(_WINDOW, default),) * layers


def windows_of_layers(fields: ConfigFields) -> tuple[int | None, ...]:
    """Reads ``sliding_window`` for the layers in ``layer_types``, else by ``max_window_layers`` (Qwen)."""
    layers = fields.integer("num_hidden_layers")
    first = fields.integer("max_window_layers", 28, minimum=0)
    types = layer_types(fields, [_SLIDING if index >= first else _FULL for index in range(layers)])
    if fields.boolean("use_sliding_window", False) and (fields.has(_WINDOW) or _WINDOW not in fields.values):
        return windows_by_type(fields, types)
    if fields.has("layer_types") and _SLIDING in types:
        fields.refuse("layer_types", "no sliding_attention, for use_sliding_window is false or there is no window")
    return (None,) * layers


def windows_by_type(
    fields: ConfigFields, default: Sequence[str], *, default_window: int = _DEFAULT_WINDOW
) -> tuple[int | None, ...]:
    """Reads ``sliding_window`` for the layers in ``layer_types``, or in ``default`` if that is absent."""
    return windows_of(fields, layer_types(fields, default), default_window)


def windows_of(fields: ConfigFields, types: Sequence[str], default: int) -> tuple[int | None, ...]:
    """Reads ``sliding_window`` for the layers of types that have one; ``default`` if it is absent."""
    if _SLIDING in types and _WINDOW in fields.values and not fields.has(_WINDOW):
        fields.refuse(_WINDOW, f"an integer of at least 1, for some layers are of type {_SLIDING}")
    window = fields.integer(_WINDOW, default)
    return tuple(window if kind == _SLIDING else None for kind in types)


def layer_types(fields: ConfigFields, default: Sequence[str]) -> list[str]:
    """Reads ``layer_types``, one for each layer; ``default`` if it is absent."""
    layers, kinds = fields.integer("num_hidden_layers"), fields.values.get("layer_types")
    if kinds is None:
        return list(default)
    if not isinstance(kinds, list) or len(kinds) < layers or any(kind not in _LAYER_TYPES for kind in kinds):
        fields.refuse("layer_types", f"a list of {layers} (num_hidden_layers) of {' or '.join(_LAYER_TYPES)}")
    return kinds[:layers]


def kinds_of_layers(
    fields: ConfigFields, known: Sequence[str], default: Sequence[str] | None, name: str = "layer_types"
) -> list[str]:
    """Reads the kind of each layer in a model of layers with states.

    Args:
        fields: fields of config.json.
        known: kinds that the family has.
        default: kinds of the layers if the field is absent; None if it must not be.
        name: name of the field.
    """
    layers, kinds = fields.integer("num_hidden_layers"), fields.values.get(name)
    if kinds is None and default is not None:
        return list(default)
    if not isinstance(kinds, list) or len(kinds) != layers or any(kind not in known for kind in kinds):
        fields.refuse(name, f"a list of {layers} (num_hidden_layers) of {' or '.join(known)}")
    return kinds


def token_ids_of(fields: ConfigFields) -> dict[str, Any]:
    """Reads ``bos_token_id`` and ``eos_token_ids`` of a ``DecoderConfig``."""
    first = fields.integer("bos_token_id", minimum=0) if fields.has("bos_token_id") else None
    return {"bos_token_id": first, "eos_token_ids": _eos_token_ids(fields)}


def _eos_token_ids(fields: ConfigFields) -> tuple[int, ...]:
    value = fields.values.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if any(not isinstance(token, int) or isinstance(token, bool) or token < 0 for token in ids):
        fields.refuse("eos_token_id", "a token id, a list of them, or null")
    return tuple(ids)
