"""Tiny configurations of every kind of layer, for tests."""

from typing import Any

from transformer_core.family._layer_configs import LayerSizes
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._rope_scaling import LinearScaling
from transformer_core.layers._routing import Routing
from transformer_core.models import DecoderConfig, DeltaConfig, ExpertsConfig, LatentConfig, Model

LLAMA = DecoderConfig(
    architecture="LlamaForCausalLM",
    vocabulary=31,
    hidden=20,
    intermediate=28,
    layers=2,
    heads=4,
    kv_heads=2,
    head_size=6,
    norm_eps=1e-5,
    rope=RopeConfig(rotated=6, trained_length=24),
    windows=(None, None),
)
VARIANTS = {
    "llama": {},
    "tied": {"tied": True},
    "mistral": {"windows": (4, 4)},
    "mixed": {"windows": (None, 3), "qkv_bias": True},
    "qwen3": {"qk_norm": True, "output_bias": True, "mlp_bias": True, "kv_heads": 1},
    "linear": {"rope": RopeConfig(rotated=6, scaling=LinearScaling(3.0))},
    "sizes": {
        "layer_sizes": (
            LayerSizes(kv_heads=2, head_size=6, intermediate=28),
            LayerSizes(kv_heads=1, head_size=8, intermediate=22, values_are_keys=True),
        ),
        "windows": (3, None),
    },
    "experts": {
        "experts": ExpertsConfig(routing=Routing(experts=5, chosen=2), inner=9, layers=(False, True), shared=7)
    },
    "latent": {
        "rope": RopeConfig(rotated=4, mode=RopeMode.INTERLEAVED),
        "latent": LatentConfig(rank=7, query_rank=5, plain_size=2, value_size=8, scale=0.4),
    },
}
HYBRID = DecoderConfig(
    architecture="Qwen3NextForCausalLM",
    vocabulary=31,
    hidden=20,
    intermediate=28,
    layers=3,
    heads=4,
    kv_heads=2,
    head_size=6,
    norm_eps=1e-5,
    rope=RopeConfig(rotated=4, trained_length=64),
    windows=(None, None, None),
    gated=True,
    zero_centred=True,
    mixer=DeltaConfig(layers=(True, False, True), key_heads=2, value_heads=4, key_size=5, value_size=3, taps=3),
)


def changed(**changes: Any) -> DecoderConfig:
    """``LLAMA`` with other fields."""
    fields = {name: getattr(LLAMA, name) for name in DecoderConfig.__dataclass_fields__}
    return DecoderConfig(**{**fields, **changes})


def sizes_of(model: Model[Any], batch: int, sequence: int | None, max_sequence: int | None) -> tuple[int, int, int]:
    """Returns B, T and S of a model's default profile."""
    profile = model.default_profile(batch, sequence, max_sequence)
    return profile.batch, profile.sequence, profile.capacity
