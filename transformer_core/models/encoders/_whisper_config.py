"""What a Whisper is made of."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from transformer_core._config_fields import ConfigFields
from transformer_core.family._fields import activation_of, token_ids_of
from transformer_core.models.encoders._stack import EncoderConfig, StackConfig

# Frames of sound that become one position of the encoder.
FRAMES_PER_POSITION: Final = 2

_NORM_EPS: Final = 1e-5  # torch's, which config.json does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperConfig(EncoderConfig):
    """A Whisper; attributes as ``EncoderConfig``, whose ``stack`` is the encoder's.

    Attributes:
        decoder: the decoder's layers.
        vocabulary: V.
        mels: the bands of the spectrogram.
        sources: positions of the encoder, S of cross-attention.
        targets: positions of the decoder.
        bos_token_id: the token that begins a sequence, if there is one.
        eos_token_ids: the tokens that end one.
    """

    decoder: StackConfig
    vocabulary: int
    mels: int
    sources: int
    targets: int
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @property
    def layers(self) -> int:
        """L of the encoder or of the decoder, of which there are more."""
        return max(self.stack.layers, self.decoder.layers)

    @property
    def stored_layers(self) -> int:
        """L: no layer is stored that is not run."""
        return self.layers

    @property
    def frames(self) -> int:
        """How many frames of sound the encoder takes."""
        return FRAMES_PER_POSITION * self.sources

    def first_layers(self, count: int) -> Self:
        """The configuration of a model of the first layers only, of the encoder's and of the decoder's."""
        stacks = {"stack": self.stack, "decoder": self.decoder}
        return replace(
            self, **{name: replace(stack, layers=min(count, stack.layers)) for name, stack in stacks.items()}
        )

    def facts(self) -> dict[str, Any]:
        """What the description of a bundle says of the model."""
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


# What a Whisper may be that this one is not, and what it is.
_FIXED: Final = {"scale_embedding": False, "tie_word_embeddings": True, "use_weighted_layer_sum": False}


def read_whisper(fields: ConfigFields, architecture: str) -> WhisperConfig:
    """Reads a config.json.

    Raises:
        ConfigError: a field is missing, of the wrong type, or asks for what is not supported.
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
