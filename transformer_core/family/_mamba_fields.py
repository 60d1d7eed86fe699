"""Fields of config.json that families with Mamba-2 share."""

import math
from typing import Any

from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import activation_of
from transformer_core.layers._mamba2 import Mamba2Sizes
from transformer_core.layers._rope_config import RopeConfig, RopeKind

_NO_LIMITS = ([0.0, math.inf], [0.0, {"__float__": "Infinity"}])  # as transformers 4 and 5 write them


def check_steps(fields: ConfigFields, name: str = "time_step_limit") -> None:
    """Refuses limits of the time step: transformers holds prompts to them, but not the tokens after these."""
    if fields.has(name) and fields.values[name] not in _NO_LIMITS:
        fields.refuse(name, "[0.0, Infinity], or no such field")


def mamba_sizes(fields: ConfigFields, inner: int, **more: Any) -> Mamba2Sizes:
    """Reads the ``mamba_`` fields of a hybrid model; ``inner`` is the number of channels of all heads."""
    check_steps(fields)
    heads = fields.integer("mamba_n_heads", 128)
    if inner % heads:
        fields.refuse("mamba_n_heads", f"a divisor of the {inner} channels of all heads")
    size = inner // heads
    if fields.has("mamba_d_head") and fields.values["mamba_d_head"] not in ("auto", size):
        fields.refuse("mamba_d_head", f"auto or {size}, for {heads} heads have {inner} channels")
    return Mamba2Sizes(
        heads=heads,
        head_size=size,
        groups=divisor_in(fields, "mamba_n_groups", 1, heads),
        state_size=fields.integer("mamba_d_state", 256),
        taps=fields.integer("mamba_d_conv", 4),
        conv_bias=fields.boolean("mamba_conv_bias", True),
        bias=fields.boolean("mamba_proj_bias", False),
        activation=activation_of(fields, default="silu"),
        **more,
    )


def divisor_in(fields: ConfigFields, name: str, default: int, heads: int) -> int:
    """Reads a number that must divide a number of heads."""
    groups = fields.integer(name, default)
    if heads % groups:
        fields.refuse(name, f"a divisor of the {heads} heads")
    return groups


def no_rope(layers: int, trained_length: int = 2**31 - 1) -> dict[str, Any]:
    """Returns the attributes of a ``DecoderConfig`` without RoPE; positions that are not an input are unlimited."""
    return {"rope": RopeConfig(rotated=2, trained_length=trained_length), "rope_kinds": (RopeKind.NONE,) * layers}
