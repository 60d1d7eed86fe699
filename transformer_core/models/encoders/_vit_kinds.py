"""Kinds of vision transformers: DINOv2 (arXiv:2304.07193), with registers (arXiv:2309.16588), DINOv3, DeiT."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lang_core import DType, ExecutionContext, Tensor, WeightSource, checked_choices, f32
from transformer_core._config_fields import ConfigFields
from transformer_core.checkpoints import Cut, Recipe, RecipeOf, RenamedModules, first_of
from transformer_core.family._model import ModelFamily
from transformer_core.layers._feed_forward import Activation
from transformer_core.layers._linear import Linear
from transformer_core.models.encoders._stack import labels_of
from transformer_core.models.encoders._vision import StackDefaults, VisionConfig, VisionModel, read_picture, read_stack
from transformer_core.models.encoders._vit_tower import VitTower

_MOST_ROTATED: Final = 1 << 17  # tokens, for which the tables of RoPE are made


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class VitKindConfig(VisionConfig):
    """Configuration of a kind of vision transformer; further attributes as of ``VisionConfig``.

    Attributes:
        others: number of first tokens behind the class token that have positions.
        registers: number of first tokens that have none.
        heads: number of classifiers: 1, or 2 of which the mean counts (DeiT's teacher).
        joined: whether the classifier reads the class token beside the mean of the patches.
        rope_base: base of a RoPE of patches; None without.
        positions: whether there are learned positions.
    """

    others: int = 0
    registers: int = 0
    heads: int = 1
    joined: bool = False
    rope_base: float | None = None
    positions: bool = True


class VitKindModel(VisionModel):
    """Vision transformer of such a kind.

    ``forward(pixel_values [B,C,height,width])`` gives ``logits`` [B,labels] of a classifier, or ``last_hidden_state``
    [B,T,D], the class token first, and ``pooler_output`` [B,D'].
    """

    def __init__(self, config: VitKindConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        own, hidden = self.config, self.config.stack.hidden
        assert isinstance(own, VitKindConfig)
        self._kind: Final = own
        kinds = {"positions": own.positions, "rope_base": own.rope_base}
        self.tower = VitTower(own, self.dtype, others=own.others, registers=own.registers, **kinds)
        pooled = own.pooled if own.others else 0
        self.pooler = Linear(hidden, pooled, bias=True, dtype=self.dtype) if pooled else None
        size = hidden * (2 if own.joined else 1)
        self.classifier = Linear(size, own.labels, bias=True, dtype=self.dtype) if own.labels else None
        self.second = Linear(size, own.labels, bias=True, dtype=self.dtype) if own.heads > 1 else None

    def results(self, ctx: ExecutionContext, pixel_values: Tensor) -> Mapping[str, Tensor]:
        """Maps pixel_values f32 [B, C, height, width] to f32 logits [B, labels], or [B, T, D] and [B, D']."""
        ops, config = ctx.ops, self._kind
        x = self.tower(ctx, pixel_values)
        first = _token(ctx, x, 0)
        if self.classifier is None:
            pooled = first if self.pooler is None else ops.tanh(self.pooler(ctx, first))
            return {"last_hidden_state": ops.cast(x, f32), "pooler_output": ops.cast(pooled, f32)}
        if config.joined:
            patches = ops.slice_axis(x, 1, config.first_tokens, x.shape[1])
            first = ops.concat([first, ops.mean(patches, (1,))], 1)
        logits = self.classifier(ctx, first)
        if self.second is not None:
            logits = ops.mul(ops.add(logits, self.second(ctx, _token(ctx, x, 1))), 0.5)
        return {"logits": ops.cast(logits, f32)}


def _token(ctx: ExecutionContext, x: Tensor, place: int) -> Tensor:
    return ctx.ops.reshape(ctx.ops.slice_axis(x, 1, place, place + 1), (x.shape[0], x.shape[2]))


_DINOV2: Final = StackDefaults(1e-6, "gelu", 768, 1, 12, 12, 224, 14)
_WITH_REGISTERS: Final = replace(_DINOV2, patch=16)
_DINOV3: Final = StackDefaults(1e-5, "gelu", 384, 1536, 12, 6, 224, 16)
_DEIT: Final = StackDefaults(1e-12, "gelu", 768, 3072, 12, 12, 224, 16)


def _read_dinov2(fields: ConfigFields, architecture: str, *, registers: bool) -> VitKindConfig:
    defaults = _WITH_REGISTERS if registers else _DINOV2
    stack = read_stack(fields, defaults, qkv_bias=fields.boolean("qkv_bias", True))
    gated, inner = fields.boolean("use_swiglu_ffn", False), int(stack.hidden * fields.number("mlp_ratio", 4))
    if gated:
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
    picture = read_picture(fields, defaults)
    if len(set(picture["image"])) > 1 or len(set(picture["patch"])) > 1:
        fields.refuse("image_size", "a square of square patches")
    count = fields.integer("num_register_tokens", 4, minimum=0) if registers else 0
    layers = replace(stack, intermediate=inner, gated_mlp=gated, layer_scale=True)
    if gated:
        layers = replace(layers, activation=Activation.SILU)
    classifies = architecture.endswith("ForImageClassification")
    return VitKindConfig(
        architecture=architecture,
        stack=layers,
        first_tokens=1 + count,
        registers=count,
        pooled=0 if classifies else stack.hidden,
        labels=labels_of(fields) if classifies else 0,
        joined=True,
        resizes="smooth" if registers else "plain",
        **picture,
    )


def _read_dinov3(fields: ConfigFields) -> VitKindConfig:
    query_bias = fields.boolean("query_bias", True)
    if fields.boolean("value_bias", True) != query_bias:
        fields.refuse("value_bias", f"{str(query_bias).lower()}, as query_bias")
    stack = replace(
        read_stack(fields, _DINOV3, qkv_bias=query_bias),
        key_bias=fields.boolean("key_bias", False),
        output_bias=fields.boolean("proj_bias", True),
        mlp_bias=fields.boolean("mlp_bias", True),
        gated_mlp=fields.boolean("use_gated_mlp", False),
        layer_scale=True,
    )
    if stack.hidden // stack.heads % 4:
        fields.refuse("num_attention_heads", f"heads of a size that 4 divides; it is {stack.hidden // stack.heads}")
    count = fields.integer("num_register_tokens", 0, minimum=0)
    config = VitKindConfig(
        architecture="DINOv3ViTModel",
        stack=stack,
        first_tokens=1 + count,
        registers=count,
        pooled=stack.hidden,
        rope_base=fields.number("rope_theta", 100.0),
        positions=False,
        **read_picture(fields, _DINOV3),
    )
    if config.tokens > _MOST_ROTATED:
        asked = "num_register_tokens" if count > _MOST_ROTATED else "image_size"
        fields.refuse(
            asked, f"a picture of at most {_MOST_ROTATED} tokens, whose RoPE is a table; it has {config.tokens}"
        )
    return config


def _read_deit(fields: ConfigFields, architecture: str) -> VitKindConfig:
    stack = read_stack(fields, _DEIT, qkv_bias=fields.boolean("qkv_bias", True))
    classifies = architecture != "DeiTModel"
    if not classifies:
        fields.choice("pooler_act", ("tanh",), "tanh")
    return VitKindConfig(
        architecture=architecture,
        stack=stack,
        first_tokens=2,
        others=1,
        pooled=0 if classifies else fields.integer("pooler_output_size", stack.hidden),
        labels=labels_of(fields) if classifies else 0,
        heads=2 if architecture.endswith("WithTeacher") else 1,
        **read_picture(fields, _DEIT),
    )


_LAYER: Final = "tower.encoder.layers.{}."
_STORED: Final = "encoder.layer.{}."
_ATTENTION: Final = {
    f"{_LAYER}self_attn.q_proj": f"{_STORED}attention.attention.query",
    f"{_LAYER}self_attn.k_proj": f"{_STORED}attention.attention.key",
    f"{_LAYER}self_attn.v_proj": f"{_STORED}attention.attention.value",
    f"{_LAYER}self_attn.o_proj": f"{_STORED}attention.output.dense",
}
_FIRST: Final = {
    "tower.class_token": "embeddings.cls_token",
    "tower.other_tokens": "embeddings.distillation_token",
    "tower.registers": "embeddings.register_tokens",
    "tower.positions": "embeddings.position_embeddings",
    "tower.patches": "embeddings.patch_embeddings.projection",
    "tower.norm": "layernorm",
}
_DEIT_KEYS: Final = RenamedModules(
    {
        **_FIRST,
        **_ATTENTION,
        f"{_LAYER}attention_norm": f"{_STORED}layernorm_before",
        f"{_LAYER}mlp_norm": f"{_STORED}layernorm_after",
        f"{_LAYER}mlp.up_proj": f"{_STORED}intermediate.dense",
        f"{_LAYER}mlp.down_proj": f"{_STORED}output.dense",
        "pooler": "pooler.dense",
        "second": "distillation_classifier",
    },
    above=("deit.",),
)
_TEACHER_KEYS: Final = RenamedModules({"classifier": "cls_classifier"})


def _dinov2_keys(above: str) -> RenamedModules:
    return RenamedModules(
        {
            **_FIRST,
            **_ATTENTION,
            f"{_LAYER}attention_norm": f"{_STORED}norm1",
            f"{_LAYER}mlp_norm": f"{_STORED}norm2",
            f"{_LAYER}attention_scale": f"{_STORED}layer_scale1.lambda1",
            f"{_LAYER}mlp_scale": f"{_STORED}layer_scale2.lambda1",
            f"{_LAYER}mlp.up_proj": f"{_STORED}mlp.fc1",
            f"{_LAYER}mlp.down_proj": f"{_STORED}mlp.fc2",
            f"{_LAYER}mlp.inputs": f"{_STORED}mlp.weights_in",
            f"{_LAYER}mlp.output": f"{_STORED}mlp.weights_out",
        },
        above=(above,),
    )


def _dinov2_recipes(config: VitKindConfig, above: str) -> RecipeOf:
    keys = _dinov2_keys(above)

    def fused(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
        """Returns the recipe of a gated feed-forward, which has gate and up projection in one tensor."""
        *layer, part, kind = name.split(".")
        path = ".".join(layer)
        if part == "down_proj":
            return keys(f"{path}.output.{kind}", shape, source)
        place = {"gate_proj": 0, "up_proj": 1}.get(part)
        if place is None:
            return None
        start = place * shape[0]
        whole = (2 * shape[0], *shape[1:])
        return Cut(keys.key(f"{path}.inputs.{kind}", source), whole, 0, start, start + shape[0])

    return first_of(fused, keys) if config.stack.gated_mlp else keys


_ANY_LAYER: Final = "*encoder.layer.{}"


def _dinov2(name: str, model_type: str, *, registers: bool) -> tuple[ModelFamily[Any], ...]:
    def family(architecture: str) -> ModelFamily[Any]:
        return ModelFamily(
            architecture,
            model_type,
            lambda fields: _read_dinov2(fields, architecture, registers=registers),
            VitKindModel,
            lambda config: _dinov2_recipes(config, f"{model_type}."),
            _ANY_LAYER,
            ("*embeddings.mask_token", "classifier.*"),
        )

    return family(f"{name}Model"), family(f"{name}ForImageClassification")


def _deit(architecture: str) -> ModelFamily[Any]:
    keys = _DEIT_KEYS
    recipes = first_of(_teacher, keys) if architecture.endswith("WithTeacher") else keys
    return ModelFamily(
        architecture,
        "deit",
        lambda fields: _read_deit(fields, architecture),
        VitKindModel,
        lambda config: recipes,
        _ANY_LAYER,
        ("*embeddings.mask_token", "*classifier.*", "*pooler.*"),
    )


def _teacher(name: str, shape: tuple[int, ...], source: WeightSource) -> Recipe | None:
    return _TEACHER_KEYS(name, shape, source) if name.startswith("classifier.") else None


_DINOV3_LAYER: Final = "layer.{}."
_DINOV3_KEYS: Final = RenamedModules(
    {
        **_FIRST,
        "tower.patches": "embeddings.patch_embeddings",
        "tower.norm": "norm",
        **{f"{_LAYER}self_attn.{part}_proj": f"{_DINOV3_LAYER}attention.{part}_proj" for part in "qkvo"},
        **{f"{_LAYER}mlp.{part}_proj": f"{_DINOV3_LAYER}mlp.{part}_proj" for part in ("gate", "up", "down")},
        f"{_LAYER}attention_norm": f"{_DINOV3_LAYER}norm1",
        f"{_LAYER}mlp_norm": f"{_DINOV3_LAYER}norm2",
        f"{_LAYER}attention_scale": f"{_DINOV3_LAYER}layer_scale1.lambda1",
        f"{_LAYER}mlp_scale": f"{_DINOV3_LAYER}layer_scale2.lambda1",
    },
    above=("model.",),
)

DINOV3: Final[ModelFamily[Any]] = ModelFamily(
    "DINOv3ViTModel",
    "dinov3_vit",
    _read_dinov3,
    VitKindModel,
    lambda config: _DINOV3_KEYS,
    "*layer.{}",
    ("embeddings.mask_token", "embeddings.register_tokens", "rope_embeddings.*"),
)
"""DINOv3 (arXiv:2508.10104): a DINOv2 with a RoPE of patches in place of positions."""

DINOV2: Final = (
    *_dinov2("Dinov2", "dinov2", registers=False),
    *_dinov2("Dinov2WithRegisters", "dinov2_with_registers", registers=True),
)
"""DINOv2, without and with registers."""

DEIT: Final = tuple(
    _deit(name) for name in ("DeiTModel", "DeiTForImageClassification", "DeiTForImageClassificationWithTeacher")
)
"""DeiT (Touvron et al. 2020, arXiv:2012.12877)."""
