"""RoPE's configuration, and its fields in Hugging Face's config.json."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lang_core import ConfigError, checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.layers._rope_scaling import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongropeScaling,
    NoScaling,
    ProportionalScaling,
    RopeScaling,
    YarnScaling,
    longrope_attention_factor,
    yarn_attention_factor,
)

DEFAULT_BASE: Final = 10000.0


class RopeMode(enum.Enum):
    """Pairs of dims of a head; R is the number of rotated dims."""

    SPLIT_HALF = "split_half"
    """``(x[i], x[i + R/2])``: Hugging Face's models, NeoX."""
    INTERLEAVED = "interleaved"
    """``(x[2i], x[2i + 1])``: GPT-J, the original Llama, GGUF's llama family."""


class RopeKind(enum.Enum):
    """RoPE of a layer, of those that a model has."""

    MODEL = "model"
    LOCAL = "local"
    """The second one, of layers with windows (Gemma 3)."""
    NONE = "none"
    """Queries and keys are not rotated (NoPE, arXiv:2501.18795)."""


@checked_choices
@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Configuration of a RoPE table besides positions and the sequence's length.

    Attributes:
        rotated: R, the number of rotated dims of a head, even; the dims past R pass through.
        base: base of the frequencies (``rope_theta``), above 1.
        trained_length: ``max_position_embeddings``.
        scaling: scaling of the frequencies beyond the trained length.
        mode: layout of the pairs.
        sections: number of the R/2 frequencies that follow each axis of the positions (multi-section RoPE).
        clockwise: whether pairs are turned by the negative angle (nanochat).
        sections_interleaved: whether the axes take turns (Qwen3-VL), or follow one another (Qwen2-VL).

    Raises:
        ConfigError: a value is out of range or contradicts another.
    """

    rotated: int
    base: float = DEFAULT_BASE
    trained_length: int = 2048
    scaling: RopeScaling = field(default_factory=NoScaling)
    mode: RopeMode = RopeMode.SPLIT_HALF
    sections: tuple[int, ...] = ()
    sections_interleaved: bool = False
    clockwise: bool = False

    def __post_init__(self) -> None:
        if self.rotated <= 0 or self.rotated % 2:
            raise ConfigError(f"RoPE: the number of rotated dims must be even and above 0; found {self.rotated}")
        if not self.base > 1:
            raise ConfigError(f"RoPE: the base (rope_theta) must be above 1; found {self.base}")
        if self.sections and (len(self.sections) != 3 or sum(self.sections) != self.rotated // 2):
            expected = f"three sizes that add up to {self.rotated // 2} (half the rotated dims)"
            raise ConfigError(f"RoPE: field 'mrope_section': expected {expected}; found {list(self.sections)}")

    @property
    def attention_factor(self) -> float:
        """Factor of cos and sin."""
        return self.scaling.attention_factor

    @property
    def reach(self) -> int | None:
        """The greatest number of positions; None if unlimited."""
        return self.scaling.reach(self.trained_length)

    @classmethod
    def from_hf(
        cls, config: ConfigFields, head_size: int, default_base: float = DEFAULT_BASE, default_share: float = 1.0
    ) -> "RopeConfig":
        """Reads the RoPE fields of a ``config.json``.

        Takes the forms of transformers 5 (``rope_parameters``) and of transformers 4 (``rope_theta``,
        ``rope_scaling`` with ``type`` or ``rope_type``).

        Args:
            config: the fields.
            head_size: H.
            default_base: base if ``rope_theta`` is absent.
            default_share: rotated share of a head if ``partial_rotary_factor`` is absent.

        Raises:
            ConfigError: a field is missing, of the wrong type, contradictory, or a type is unknown.
        """
        rope = _rope_fields(config)
        share = _either(rope, config, "partial_rotary_factor").number("partial_rotary_factor", default_share)
        if share > 1:
            rope.refuse("partial_rotary_factor", "a number above 0, not above 1")
        kind_field = "rope_type" if rope.has("rope_type") else "type"
        kind = rope.choice(kind_field, _READERS, "default")
        rotated = head_size if kind == _PROPORTIONAL else int(head_size * share)
        trained = config.integer("max_position_embeddings")
        if rotated <= 0 or rotated % 2:
            raise ConfigError(
                f"{config.where}: RoPE turns pairs of dims: expected an even number of rotated dims; found {rotated} "
                f"(head_dim {head_size}, partial_rotary_factor {share:g})"
            )
        sections = rope.values.get("mrope_section") or []
        if not isinstance(sections, list) or not all(isinstance(size, int) for size in sections):
            rope.refuse("mrope_section", "a list of three integers")
        return cls(
            rotated=rotated,
            base=_either(rope, config, "rope_theta").number("rope_theta", default_base, above=1.0),
            trained_length=trained,
            scaling=_READERS[kind](rope, _original_length(rope, config, trained), trained, rotated),
            sections=tuple(sections),
            sections_interleaved=rope.boolean("mrope_interleaved", False),
        )


def _rope_fields(config: ConfigFields) -> ConfigFields:
    """Returns the object with RoPE's type; empty if the file has none."""
    names = [name for name in ("rope_parameters", "rope_scaling") if config.has(name)]
    if not names:
        return ConfigFields({}, config.where)
    if len(names) == 2 and config.values[names[0]] != config.values[names[1]]:
        config.refuse("rope_scaling", f"the same as rope_parameters ({config.values['rope_parameters']}), or null")
    rope = config.object(names[0])
    nested = [name for name, value in rope.values.items() if isinstance(value, dict)]
    if nested:
        rope.refuse(nested[0], "one set of RoPE parameters for all layers (sets per layer type are not supported)")
    return rope


def _either(rope: ConfigFields, config: ConfigFields, name: str) -> ConfigFields:
    return rope if rope.has(name) else config


def _original_length(rope: ConfigFields, config: ConfigFields, trained: int) -> int:
    """Reads the length before scaling; like transformers, first beside ``max_position_embeddings`` (Phi-3)."""
    name = "original_max_position_embeddings"
    return (config if config.has(name) else rope).integer(name, trained, minimum=2)


def _llama3(rope: ConfigFields, original: int, trained: int, rotated: int) -> RopeScaling:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if high <= low:
        rope.refuse("high_freq_factor", f"a number above low_freq_factor ({low:g})")
    return Llama3Scaling(rope.number("factor"), low, high, original)


def _yarn(rope: ConfigFields, original: int, trained: int, rotated: int) -> RopeScaling:
    factor = rope.number("factor", trained / original)
    if rope.has("attention_factor"):
        attention = rope.number("attention_factor")
    else:
        scales = [rope.number(name, above=-1.0) if rope.has(name) else 0.0 for name in ("mscale", "mscale_all_dim")]
        attention = yarn_attention_factor(factor, scales[0], scales[1])
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    if fast < slow:
        rope.refuse("beta_fast", f"a number of at least beta_slow ({slow:g})")
    return YarnScaling(factor, original, fast, slow, attention, rope.boolean("truncate", True))


def _longrope(rope: ConfigFields, original: int, trained: int, rotated: int) -> RopeScaling:
    factor = rope.number("factor", trained / original)
    inferred = longrope_attention_factor(factor, original)
    return LongropeScaling(
        short_factors=rope.numbers("short_factor", rotated // 2),
        long_factors=rope.numbers("long_factor", rotated // 2),
        original_length=original,
        factor_of_attention=rope.number("attention_factor", inferred),
    )


def _proportional(rope: ConfigFields, original: int, trained: int, rotated: int) -> RopeScaling:
    return ProportionalScaling(rope.number("partial_rotary_factor", 1.0), rope.number("factor", 1.0))


_PROPORTIONAL: Final = "proportional"
_READERS: Final[dict[str, Callable[[ConfigFields, int, int, int], RopeScaling]]] = {
    "default": lambda rope, original, trained, rotated: NoScaling(),
    "linear": lambda rope, original, trained, rotated: LinearScaling(rope.number("factor")),
    "dynamic": lambda rope, original, trained, rotated: DynamicScaling(rope.number("factor"), trained),
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    _PROPORTIONAL: _proportional,
    "su": _longrope,  # its first name, in early Phi-3 files
    "mrope": lambda rope, original, trained, rotated: NoScaling(),  # transformers 4's name for sections
}


def rope_config_from_hf(config: dict[str, Any], head_size: int, where: str = "config.json") -> RopeConfig:
    """Reads a plain dictionary by ``RopeConfig.from_hf``."""
    return RopeConfig.from_hf(ConfigFields(config, where), head_size)
