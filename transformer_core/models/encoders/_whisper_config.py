"""Configuration of a Whisper."""

import os
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from transformer_core._config_fields import ConfigFields
from transformer_core._json_files import json_object
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.models.encoders._stack import EncoderConfig, StackConfig

FRAMES_PER_POSITION: Final = 2
"""Frames of the spectrogram per position of the encoder."""

_NORM_EPS: Final = 1e-5  # torch's default, which config.json lacks


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperConfig(EncoderConfig):
    """Configuration of a Whisper; further attributes as of ``EncoderConfig``; ``stack`` is the encoder's.

    Attributes:
        decoder: configuration of the decoder's layers.
        vocabulary: V.
        mels: number of bands of the spectrogram.
        sources: number of the encoder's positions, S of cross-attention.
        targets: number of the decoder's positions.
        bos_token_id: token that begins a sequence, if there is one.
        eos_token_ids: tokens that end a sequence.
        alignment: layer and head of the decoder's attention that follows the words, ascending; empty if unknown.
    """

    decoder: StackConfig
    vocabulary: int
    mels: int
    sources: int
    targets: int
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()

    @property
    def layers(self) -> int:
        """The greater L of encoder and decoder."""
        return max(self.stack.layers, self.decoder.layers)

    @property
    def stored_layers(self) -> int:
        """L, as every stored layer is run."""
        return self.layers

    @property
    def frames(self) -> int:
        """Number of frames of the spectrogram that the encoder takes."""
        return FRAMES_PER_POSITION * self.sources

    def first_layers(self, count: int) -> Self:
        """Returns the configuration with the first layers only, of both encoder and decoder."""
        stacks = {"stack": self.stack, "decoder": self.decoder}
        shorter = {name: replace(stack, layers=min(count, stack.layers)) for name, stack in stacks.items()}
        return replace(self, **shorter, alignment=tuple(pair for pair in self.alignment if pair[0] < count))

    def facts(self) -> dict[str, Any]:
        """Returns the model's entries in the description of a bundle."""
        return {
            "vocabulary": self.vocabulary,
            **self.decoder.facts(),
            "layers": self.layers,
            "encoder": self.stack.facts(),
            "decoder_layers": self.decoder.layers,
            "mels": self.mels,
            "sources": self.sources,
            "targets": self.targets,
        }


def as_aligned(config: WhisperConfig, directory: str | os.PathLike[str]) -> WhisperConfig:
    """Returns a configuration with the heads that ``alignment_heads`` of generation_config.json names.

    Heads of layers that the decoder lacks are another model's (distilled models may have their teacher's): then there
    are none.

    Raises:
        ConfigError: the file is damaged.
    """
    path = os.path.join(os.fspath(directory), _GENERATION_FILE)
    fields = ConfigFields(json_object(path, _FETCH), path) if os.path.exists(path) else None
    if fields is None or not fields.has(_ALIGNMENT):
        return config
    pairs, stack = fields.values[_ALIGNMENT], config.decoder
    if not isinstance(pairs, list) or not all(_is_pair(pair) for pair in pairs):
        fields.refuse(_ALIGNMENT, "pairs of a layer and a head, each 0 or more")
    known = all(layer < stack.layers and head < stack.heads for layer, head in pairs)
    return replace(config, alignment=tuple(sorted({(layer, head) for layer, head in pairs}))) if known else config


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(type(number) is int and number >= 0 for number in pair)


_GENERATION_FILE: Final = "generation_config.json"
_ALIGNMENT: Final = "alignment_heads"
_FETCH: Final = "copy it from the model again"

# Supported values of fields that select other variants of Whisper.
_FIXED: Final = {"scale_embedding": False, "tie_word_embeddings": True, "use_weighted_layer_sum": False}


def read_whisper(fields: ConfigFields, architecture: str) -> WhisperConfig:
    """Reads a config.json.

    Raises:
        ConfigError: a field is missing, of the wrong type, or not supported.
    """
    for name, value in _FIXED.items():
        if fields.boolean(name, value) is not value:
            fields.refuse(name, f"{str(value).lower()}, or no such field")
    return WhisperConfig(
        architecture=architecture,
        stack=_stack(fields, "encoder"),
        decoder=_stack(fields, "decoder"),
        vocabulary=fields.integer("vocab_size"),
        mels=fields.integer("num_mel_bins"),
        sources=fields.integer("max_source_positions"),
        targets=fields.integer("max_target_positions"),
        **token_ids_of(fields),
    )


def _stack(fields: ConfigFields, part: str) -> StackConfig:
    hidden, heads = fields.integer("d_model"), fields.integer(f"{part}_attention_heads")
    if hidden % heads:
        fields.refuse("d_model", f"a multiple of {part}_attention_heads ({heads})")
    return StackConfig(
        hidden=hidden,
        intermediate=fields.integer(f"{part}_ffn_dim"),
        layers=fields.integer(f"{part}_layers"),
        heads=heads,
        norm_eps=_NORM_EPS,
        activation=activation_of(fields, "activation_function", "gelu"),
        key_bias=False,
    )
