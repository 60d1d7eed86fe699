"""Configurations of BART's group: encoder-decoders with absolute positions."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from lang_core import checked_choices
from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.models.encoders._stack import EncoderConfig, StackConfig
from transformer_core.models.encoders._windows import Windows, window_distances

_NORM_EPS: Final = 1e-5  # torch's default, which config.json lacks
_LEAST_HIDDEN: Final = 4  # two frequencies of sinusoids


class PositionKind(enum.Enum):
    """Positions of a family: a learned table, a table of sines and cosines that may be stored, or sinusoids."""

    LEARNED = enum.auto()
    STATIC = enum.auto()
    SINUSOIDS = enum.auto()


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class BartKind:
    """Differences between the families of BART's group.

    Attributes:
        positions: kind of the positions.
        offset: number of the first token's position; learned tables have as many rows before it.
        post_norm: whether norms follow the residual additions; otherwise encoder and decoder end with a norm.
        embedding_norm: whether embeddings are normed.
        norms_tokens: whether the decoder norms its embeddings before positions are added (Blenderbot Small).
        logits_bias: whether logits have a bias.
        activation: default of ``activation_function``.
        scaled: default of ``scale_embedding``; None if embeddings are never scaled.
        windowed: whether the encoder's layers have windows, and source and answer their own numbers of positions (LED).
        prefix: first part of the stored names.
    """

    positions: PositionKind = PositionKind.LEARNED
    offset: int = 0
    post_norm: bool = False
    embedding_norm: bool = False
    norms_tokens: bool = False
    logits_bias: bool = True
    activation: str = "gelu"
    scaled: bool | None = False
    windowed: bool = False
    prefix: str = "model"


@checked_choices
@dataclass(frozen=True, slots=True, kw_only=True)
class BartConfig(EncoderConfig):
    """Configuration of a model of BART's group; attributes otherwise as of ``EncoderConfig``; ``stack`` encodes.

    Attributes:
        kind: the family's differences.
        decoder: configuration of the decoder's layers.
        vocabulary: V, of the tokens that the decoder writes.
        source_vocabulary: number of the encoder's tokens.
        shared: whether encoder and decoder have one embedding, unless ``untied`` has theirs.
        positions: number of positions of an answer; None without a limit.
        source_positions: number of positions of the source; None without a limit.
        windows: windows of the encoder's layers, if they have some.
        scale: factor of the embeddings.
        tied: whether the decoder's embedding is also the head, unless ``untied`` has it.
        eos_token_ids: tokens that end a sequence.
    """

    kind: BartKind
    decoder: StackConfig
    vocabulary: int
    source_vocabulary: int
    shared: bool = True
    positions: int | None = None
    source_positions: int | None = None
    windows: Windows | None = None
    scale: float = 1.0
    tied: bool = True
    eos_token_ids: tuple[int, ...] = ()

    @property
    def layers(self) -> int:
        """The greater L of encoder and decoder."""
        return max(self.stack.layers, self.decoder.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both encoder and decoder."""
        stacks = {"stack": self.stack, "decoder": self.decoder}
        return replace(
            self, **{name: replace(stack, layers=min(count, stack.layers)) for name, stack in stacks.items()}
        )

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {
            "vocabulary": self.vocabulary,
            **self.decoder.facts(),
            "layers": self.layers,
            "encoder": self.stack.facts(),
            "decoder_layers": self.decoder.layers,
            "source_vocabulary": self.source_vocabulary,
            "positions": self.positions,
            "source_positions": self.source_positions,
        }


def read_bart(fields: ConfigFields, architecture: str, kind: BartKind, defaults: Mapping[str, Any]) -> BartConfig:
    """Reads a config.json of a family of the group.

    Args:
        fields: fields of config.json.
        architecture: architecture of the family.
        kind: the family's differences.
        defaults: transformers' values of fields that the file lacks.

    Raises:
        ConfigError: a field is missing, of the wrong type, or not supported.
    """
    if fields.boolean("is_decoder", False):
        fields.refuse("is_decoder", "false, or no such field")
    hidden = fields.integer("d_model", defaults["d_model"], minimum=_LEAST_HIDDEN)
    source_positions, positions = _positions(fields, kind, defaults)
    if kind.positions is PositionKind.SINUSOIDS and hidden % 2:
        fields.refuse("d_model", "an even number: sines and cosines have one half each")
    vocabulary = fields.integer("vocab_size", defaults["vocab_size"])
    shared = fields.boolean("share_encoder_decoder_embeddings", True) if "shares" in defaults else True
    written = vocabulary
    if not shared:
        written = fields.integer("decoder_vocab_size", vocabulary)
    elif "shares" in defaults and fields.integer("decoder_vocab_size", vocabulary) != vocabulary:
        fields.refuse("decoder_vocab_size", f"vocab_size ({vocabulary}), for embeddings are shared")
    first = kind.offset
    if kind.positions is PositionKind.SINUSOIDS:  # positions count behind the padding's
        first = fields.integer("pad_token_id", 1, minimum=0) + 1
    stack = _stack(fields, "encoder", hidden, kind, defaults)
    scaled = kind.scaled is not None and fields.boolean("scale_embedding", kind.scaled)
    return BartConfig(
        architecture=architecture,
        kind=replace(kind, offset=first),
        stack=stack,
        decoder=_stack(fields, "decoder", hidden, kind, defaults),
        vocabulary=written,
        source_vocabulary=vocabulary,
        shared=shared,
        positions=positions,
        source_positions=source_positions,
        windows=Windows(window_distances(fields, stack.layers)) if kind.windowed else None,
        scale=hidden**0.5 if scaled else 1.0,
        tied=fields.boolean("tie_word_embeddings", True),
        eos_token_ids=token_ids_of(fields)["eos_token_ids"],
    )


def _positions(fields: ConfigFields, kind: BartKind, defaults: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Reads the numbers of positions of source and answer."""
    if kind.windowed:
        names = ("max_encoder_position_embeddings", "max_decoder_position_embeddings")
        source, answer = (fields.integer(name, defaults[name]) for name in names)
        return source, answer
    positions = fields.integer("max_position_embeddings", defaults["max_position_embeddings"])
    return (None, None) if kind.positions is PositionKind.SINUSOIDS else (positions, positions)


def _stack(fields: ConfigFields, part: str, hidden: int, kind: BartKind, defaults: Mapping[str, Any]) -> StackConfig:
    sizes = {name: fields.integer(f"{part}_{name}", defaults[f"{part}_{name}"]) for name in ("layers", "ffn_dim")}
    heads = fields.integer(f"{part}_attention_heads", defaults[f"{part}_attention_heads"])
    if hidden % heads:
        fields.refuse("d_model", f"a multiple of {part}_attention_heads ({heads})")
    return StackConfig(
        hidden=hidden,
        intermediate=sizes["ffn_dim"],
        layers=sizes["layers"],
        heads=heads,
        norm_eps=_NORM_EPS,
        activation=activation_of(fields, "activation_function", kind.activation),
        post_norm=kind.post_norm,
    )
