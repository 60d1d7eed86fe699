"""wav2vec 2.0 (Baevski et al. 2020, arXiv:2006.11477), MMS (arXiv:2305.13516) and HuBERT (arXiv:2106.07447)."""

from collections.abc import Callable
from typing import Any, Final

from lang_core import WeightSource
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Recipe, RecipeOf, RenamedModules, WeightNormed, first_of
from transformer_core.family._fields import activation_of
from transformer_core.family._model import ModelFamily
from transformer_core.models.encoders._sound import SampleConv, SoundConfig, SoundModel
from transformer_core.models.encoders._stack import StackConfig, labels_of

_OUTPUTS: Final = [512] * 7
_WIDTHS: Final = [10, 3, 3, 3, 3, 2, 2]
_STRIDES: Final = [5, 2, 2, 2, 2, 2, 2]
_HEADS: Final = ("Model", "ForCTC", "ForSequenceClassification")


def read_sound(fields: ConfigFields, architecture: str, **known: Any) -> SoundConfig:
    """Reads a model of wav2vec2's kin; ``known`` are attributes of its own.

    Raises:
        ConfigError: a field is of the wrong type, out of range or not supported.
    """
    for name in ("add_adapter", "conv_pos_batch_norm"):
        if fields.boolean(name, False):
            fields.refuse(name, "false, or no such field")
    hidden, heads = fields.integer("hidden_size", 768), fields.integer("num_attention_heads", 12)
    groups = fields.integer("num_conv_pos_embedding_groups", 16)
    for name, parts in (("num_attention_heads", heads), ("num_conv_pos_embedding_groups", groups)):
        if hidden % parts:
            fields.refuse(name, f"a number that divides hidden_size ({hidden})")
    stable = fields.boolean("do_stable_layer_norm", False)
    head = architecture.endswith("ForSequenceClassification")
    stack = StackConfig(
        hidden=hidden,
        intermediate=fields.integer("intermediate_size", 3072),
        layers=fields.integer("num_hidden_layers", 12),
        heads=heads,
        norm_eps=fields.number("layer_norm_eps", 1e-5),
        activation=activation_of(fields, default="gelu"),
        post_norm=not stable,
    )
    return SoundConfig(
        architecture=architecture,
        stack=stack,
        convs=_convs(fields),
        conv_bias=fields.boolean("conv_bias", False),
        conv_activation=activation_of(fields, "feat_extract_activation", "gelu"),
        layer_normed=fields.choice("feat_extract_norm", ("group", "layer"), "group") == "layer",
        position_taps=fields.integer("num_conv_pos_embeddings", 128),
        position_groups=groups,
        vocabulary=fields.integer("vocab_size", 32) if architecture.endswith("ForCTC") else 0,
        projected=fields.integer("classifier_proj_size", 256) if head else 0,
        labels=labels_of(fields) if head else 0,
        weighted=head and fields.boolean("use_weighted_layer_sum", False),
        **{"projection_norm": True, **known},
    )


def _convs(fields: ConfigFields) -> tuple[SampleConv, ...]:
    lists = [
        _integers(fields, name, default)
        for name, default in (("conv_dim", _OUTPUTS), ("conv_kernel", _WIDTHS), ("conv_stride", _STRIDES))
    ]
    if len({len(values) for values in lists}) > 1:
        fields.refuse("conv_dim", f"as many numbers as conv_kernel ({len(lists[1])}) and conv_stride ({len(lists[2])})")
    return tuple(SampleConv(*sizes) for sizes in zip(*lists, strict=True))


def _integers(fields: ConfigFields, name: str, default: list[int]) -> list[int]:
    values = fields.values.get(name) or default
    most = _MOST[name]
    whole = isinstance(values, list) and 1 <= len(values) <= _MOST_CONVS
    if not whole or not all(type(value) is int and 1 <= value <= most for value in values):
        fields.refuse(name, f"a list of 1 to {_MOST_CONVS} integers of 1 to {most}")
    return values


_MOST_CONVS: Final = 16
_MOST: Final = {"conv_dim": 2**16, "conv_kernel": 64, "conv_stride": 64}
_LAYER: Final = "layers.{}."
_STORED: Final = "encoder.layers.{}."
NAMES: Final = {
    "convs.{}.conv": "feature_extractor.conv_layers.{}.conv",
    "convs.{}.norm": "feature_extractor.conv_layers.{}.layer_norm",
    "projection_norm": "feature_projection.layer_norm",
    "projection": "feature_projection.projection",
    "positions": "encoder.pos_conv_embed.conv",
    "norm": "encoder.layer_norm",
    **{f"{_LAYER}self_attn.{part}_proj": f"{_STORED}attention.{part}_proj" for part in "qkv"},
    f"{_LAYER}self_attn.o_proj": f"{_STORED}attention.out_proj",
    f"{_LAYER}attention_norm": f"{_STORED}layer_norm",
    f"{_LAYER}mlp.up_proj": f"{_STORED}feed_forward.intermediate_dense",
    f"{_LAYER}mlp.down_proj": f"{_STORED}feed_forward.output_dense",
    f"{_LAYER}mlp_norm": f"{_STORED}final_layer_norm",
    f"{_LAYER}adapter.norm": f"{_STORED}adapter_layer.norm",
    f"{_LAYER}adapter.up": f"{_STORED}adapter_layer.linear_1",
    f"{_LAYER}adapter.down": f"{_STORED}adapter_layer.linear_2",
    "head": "lm_head",
}
"""Stored names of the modules of wav2vec2's kin."""

# How checkpoints name the lengths and the directions of a weight in weight norm.
_NORMED: Final = (("parametrizations.weight.original0", "parametrizations.weight.original1"), ("weight_g", "weight_v"))


def sound_recipes(keys: RenamedModules, above: str) -> RecipeOf:
    """Returns the recipes of a model, of which the convolution of positions may be stored in weight norm."""

    def recipe(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        if name != "positions.weight":
            return None
        for prefix in (above, ""):
            conv = f"{prefix}{NAMES['positions']}"
            for lengths, directions in _NORMED:
                if source.has(f"{conv}.{directions}"):
                    return WeightNormed(f"{conv}.{lengths}", f"{conv}.{directions}", shape)
        return None

    return first_of(recipe, keys)


def sound_families(
    name: str, model_type: str, read: Callable[[ConfigFields, str], SoundConfig], make: type[SoundModel] = SoundModel
) -> tuple[ModelFamily[Any], ...]:
    """Returns the families of a model with each of its heads."""
    above = f"{model_type.replace('-', '_')}."
    recipes = sound_recipes(RenamedModules({**NAMES, **getattr(make, "NAMES", {})}, above=(above,)), above)

    def family(architecture: str) -> ModelFamily[Any]:
        return ModelFamily(
            architecture,
            model_type,
            lambda fields: read(fields, architecture),
            make,
            lambda config: recipes,
            "*encoder.layers.{}",
            ("*masked_spec_embed", "*quantizer.*", "*project_q.*", "*project_hid.*", *_HEAD_KEYS),
        )

    return tuple(family(f"{name}{head}") for head in _HEADS)


_HEAD_KEYS: Final = ("lm_head.*", "projector.*", "classifier.*", "*layer_weights")


def _read_wav2vec2(fields: ConfigFields, architecture: str) -> SoundConfig:
    adapter = fields.integer("adapter_attn_dim") if fields.has("adapter_attn_dim") else 0
    if adapter and not fields.boolean("do_stable_layer_norm", False):
        adapter = 0  # transformers has adapters in layers that norm first alone
    return read_sound(fields, architecture, adapter=adapter)


def _read_hubert(fields: ConfigFields, architecture: str) -> SoundConfig:
    return read_sound(fields, architecture, projection_norm=fields.boolean("feat_proj_layer_norm", True))


WAV2VEC2: Final = sound_families("Wav2Vec2", "wav2vec2", _read_wav2vec2)
HUBERT: Final = sound_families("Hubert", "hubert", _read_hubert)
