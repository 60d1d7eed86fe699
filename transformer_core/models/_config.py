"""What a decoder is made of, read from Hugging Face's config.json."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lang_core import ConfigError
from transformer_core._config_fields import ConfigFields
from transformer_core._rope_config import RopeConfig

CONFIG_FILE: Final = "config.json"
_SLIDING: Final = "sliding_attention"
_LAYER_TYPES: Final = ("full_attention", _SLIDING)
# model_type, for files without "architectures".
_BY_MODEL_TYPE: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
ARCHITECTURES: Final = tuple(_BY_MODEL_TYPE.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderConfig:
    """A decoder of the Llama family.

    Attributes:
        architecture: one of ``ARCHITECTURES``.
        vocabulary: V.
        hidden: D.
        intermediate: F.
        layers: L.
        heads: N.
        kv_heads: K.
        head_size: H.
        norm_eps: of every RMSNorm.
        rope: of every layer.
        windows: per layer, how many keys a query sees, itself included; None is all.
        tied: whether the embedding is also the output projection.
        qkv_bias: whether the projections of queries, keys and values have biases.
        output_bias: whether attention's output projection has one.
        mlp_bias: whether the feed-forward projections have biases.
        qk_norm: whether each head of q and k is normed before RoPE.
        bos_token_id: the token that begins a sequence, if there is one.
        eos_token_ids: the tokens that end one.
    """

    architecture: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    norm_eps: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_hf(cls, values: Mapping[str, Any], where: str = CONFIG_FILE) -> "DecoderConfig":
        """Reads a ``config.json``, of transformers 4 or 5.

        Args:
            values: the file's content.
            where: the file's path, for messages.

        Raises:
            ConfigError: the architecture is not supported, or a field is missing, of the wrong type, out of range or
                in contradiction to another one.
        """
        config = ConfigFields(values, where)
        architecture = _architecture(config)
        _refuse_what_is_not_built(config)
        heads, kv_heads, head_size = _heads(config, architecture)
        layers = config.integer("num_hidden_layers")
        rope = RopeConfig.from_hf(config, head_size)
        if rope.rotated != head_size or rope.sections:
            raise ConfigError(
                f"{where}: {architecture} rotates whole heads by one position: expected no partial_rotary_factor below "
                f"1 and no mrope_section; found {rope.rotated} of {head_size} dims, sections {list(rope.sections)}"
            )
        qwen2 = architecture == "Qwen2ForCausalLM"
        attention_bias = architecture in ("LlamaForCausalLM", "Qwen3ForCausalLM") and _flag(config, "attention_bias")
        return cls(
            architecture=architecture,
            vocabulary=config.integer("vocab_size"),
            hidden=config.integer("hidden_size"),
            intermediate=config.integer("intermediate_size"),
            layers=layers,
            heads=heads,
            kv_heads=kv_heads,
            head_size=head_size,
            norm_eps=config.number("rms_norm_eps"),
            rope=rope,
            windows=_windows(config, architecture, layers),
            tied=_flag(config, "tie_word_embeddings"),
            qkv_bias=qwen2 or attention_bias,
            output_bias=attention_bias,
            mlp_bias=architecture == "LlamaForCausalLM" and _flag(config, "mlp_bias"),
            qk_norm=architecture == "Qwen3ForCausalLM",
            bos_token_id=config.integer("bos_token_id", minimum=0) if config.has("bos_token_id") else None,
            eos_token_ids=_eos_token_ids(config),
        )


def load_config(directory: str | os.PathLike[str]) -> DecoderConfig:
    """Reads ``config.json`` of a Hugging Face directory.

    Raises:
        ConfigError: the file is missing, unreadable or no JSON object, or as ``DecoderConfig.from_hf``.
    """
    path = os.path.join(os.fspath(directory), CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
    except FileNotFoundError:
        remedy = "give the directory of a Hugging Face model, with config.json beside its *.safetensors"
        raise ConfigError(f"{path}: no such file: {remedy}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:  # json.JSONDecodeError and UnicodeDecodeError are ValueErrors
        raise ConfigError(f"{path}: is no JSON: {error}: fetch the file again") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a JSON object; found {type(values).__name__}: fetch the file again")
    return DecoderConfig.from_hf(values, path)


def _architecture(config: ConfigFields) -> str:
    model_type = config.values.get("model_type")
    if not config.has("architectures") and isinstance(model_type, str) and model_type in _BY_MODEL_TYPE:
        return _BY_MODEL_TYPE[model_type]
    names = config.values.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        config.refuse("architectures", f"a list of one of {', '.join(ARCHITECTURES)}")
    return ConfigFields({"architectures": names[0]}, config.where).choice("architectures", ARCHITECTURES)


def _refuse_what_is_not_built(config: ConfigFields) -> None:
    config.choice("hidden_act", ("silu", "swish"), "silu")
    if config.has("quantization_config"):
        config.refuse("quantization_config", "none: only f32, f16 and bf16 weights are read; take the original model")


def _heads(config: ConfigFields, architecture: str) -> tuple[int, int, int]:
    """N, K and H. Where a field is absent, the family's own rule holds; a family's odd default is not guessed."""
    heads = config.integer("num_attention_heads")
    absent_is_heads = architecture == "LlamaForCausalLM" or "num_key_value_heads" in config.values
    kv_heads = config.integer("num_key_value_heads", heads if absent_is_heads else None)
    if heads % kv_heads:
        config.refuse("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    hidden = config.integer("hidden_size")
    if config.has("head_dim") or architecture == "Qwen3ForCausalLM":
        return heads, kv_heads, config.integer("head_dim")
    if hidden % heads:
        config.refuse("hidden_size", f"a multiple of num_attention_heads ({heads}), or a field head_dim")
    return heads, kv_heads, hidden // heads


def _flag(config: ConfigFields, name: str) -> bool:
    return config.boolean(name, False)


def _windows(config: ConfigFields, architecture: str, layers: int) -> tuple[int | None, ...]:
    if architecture == "LlamaForCausalLM":
        return (None,) * layers
    name = "sliding_window"
    if architecture == "MistralForCausalLM":
        if name in config.values and config.values[name] is None:
            return (None,) * layers
        return (config.integer(name, 4096),) * layers  # transformers' default where the field is absent
    kinds = config.values.get("layer_types")
    if kinds is not None and (
        not isinstance(kinds, list) or len(kinds) < layers or any(kind not in _LAYER_TYPES for kind in kinds)
    ):
        config.refuse("layer_types", f"a list of {layers} (num_hidden_layers) of {' or '.join(_LAYER_TYPES)}")
    if not config.boolean("use_sliding_window", False) or (name in config.values and config.values[name] is None):
        if kinds is not None and _SLIDING in kinds[:layers]:
            config.refuse("layer_types", "no sliding_attention, for use_sliding_window is false or there is no window")
        return (None,) * layers
    window, first = config.integer(name, 4096), config.integer("max_window_layers", 28, minimum=0)
    slides = [i >= first for i in range(layers)] if kinds is None else [kind == _SLIDING for kind in kinds[:layers]]
    return tuple(window if sliding else None for sliding in slides)


def _eos_token_ids(config: ConfigFields) -> tuple[int, ...]:
    found = config.values.get("eos_token_id")
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if any(not isinstance(token, int) or isinstance(token, bool) or token < 0 for token in ids):
        config.refuse("eos_token_id", "a token id, a list of them, or null")
    return tuple(ids)
