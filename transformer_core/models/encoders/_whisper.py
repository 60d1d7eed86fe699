"""Whisper (Radford et al. 2022, arXiv:2212.04356): speech to text by an encoder and a decoder that attends to it."""

from collections.abc import Mapping, Sequence
from typing import Final

from lang_core import Argument, DType, EntryPoint, ExecutionContext, Module, Tensor, TensorSpec
from transformer_core._names import ALIGN
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import DEFAULT_SEQUENCE, ModelFamily, check_size
from transformer_core.flow import CompileProfile
from transformer_core.layers._convolution import Conv1d
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._kv_cache import HEAD_AXES, KVCache
from transformer_core.layers._linear import VocabularyLinear
from transformer_core.layers._logits import logits_of
from transformer_core.models.encoders._encoder_decoder import EncoderDecoder
from transformer_core.models.encoders._stack import EncoderStack, layer_norm
from transformer_core.models.encoders._whisper_config import FRAMES_PER_POSITION, WhisperConfig, read_whisper
from transformer_core.models.encoders._whisper_decoder import WhisperDecoder

_TAPS: Final = 3  # width of both convolutions


class WhisperEncoder(Module):
    """Encoder: two convolutions over the frames, the second with stride 2, layers, and a norm."""

    def __init__(self, config: WhisperConfig, dtype: DType) -> None:
        hidden = config.stack.hidden
        self.conv1 = Conv1d(config.mels, hidden, _TAPS, padding=1, dtype=dtype)
        self.conv2 = Conv1d(hidden, hidden, _TAPS, stride=FRAMES_PER_POSITION, padding=1, dtype=dtype)
        self.embed_positions = Embedding(config.sources, hidden, dtype=dtype, packable=False)
        self.stack = EncoderStack(config.stack, dtype)
        self.norm = layer_norm(config.stack, dtype)

    def forward(self, ctx: ExecutionContext, input_features: Tensor) -> Tensor:
        """Maps input_features [B, mels, frames] to [B, S', D]."""
        ops = ctx.ops
        x = ops.transpose(ops.cast(input_features, self.conv1.weight.spec.dtype), (0, 2, 1))
        x = ops.gelu(self.conv2(ctx, ops.gelu(self.conv1(ctx, x))))
        x = ops.add(x, ctx.parameter(self.embed_positions.weight))
        return self.norm(ctx, self.stack(ctx, x))


_HEAD: Final = "proj_out.weight"


class WhisperForConditionalGeneration(EncoderDecoder[WhisperConfig]):
    """Whisper: an ``EncoderDecoder`` with the source ``input_features`` f32 [B,mels,frames], without padding.

    The decoder's head is its embedding, unless the checkpoint stores another one.
    ``forward(input_features, token_ids [B,T])`` gives logits [B,T,V].
    """

    def __init__(self, config: WhisperConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.encoder = WhisperEncoder(self.config, self.dtype)
        self.decoder = WhisperDecoder(self.config, self.dtype)
        own = _HEAD in self.config.untied
        hidden, vocabulary = self.config.decoder.hidden, self.config.vocabulary
        self.proj_out = VocabularyLinear(hidden, vocabulary, dtype=self.dtype) if own else None

    def forward(self, ctx: ExecutionContext, input_features: Tensor, token_ids: Tensor) -> Tensor:
        """Maps input_features [B, mels, frames] and token_ids i32 [B, T] to logits f32 [B, T, V]."""
        return self.whole(ctx, (input_features,), token_ids)

    def source_arguments(self, profile: CompileProfile) -> tuple[Argument, ...]:
        """Returns the spectrogram."""
        spec = TensorSpec((profile.batch, self.config.mels, self.config.frames), "f32")
        return (Argument("input_features", spec),)

    def source_tokens(self, profile: CompileProfile) -> int:
        """Returns S', the same for every sound."""
        del profile
        return self.config.sources

    def target_tokens(self, profile: CompileProfile) -> tuple[str, int]:
        """Returns name and T of the decoder's tokens in ``forward``."""
        return "token_ids", profile.sequence

    def encoded(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor:
        """Computes the encoder's states [B, S', D]."""
        return self.encoder(ctx, *sources)

    def crosses(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes keys and values [B, K, S', H] of the states [B, S', D], of each layer of the decoder."""
        return self.decoder.cross_keys_values(ctx, states)

    def decoded(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        crosses: Sequence[KVCache],
        source_bias: Tensor | None,
        caches: Sequence[KVCache] | None = None,
        position: Tensor | None = None,
    ) -> tuple[Tensor, tuple[KVCache, ...]]:
        """Runs the decoder on token_ids i32 [B, T]: normed states [B, T, D], and the updated caches."""
        del source_bias
        return self.decoder(ctx, token_ids, crosses, caches, position)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""
        return logits_of(ctx, x, (self.proj_out or self.decoder.embed_tokens).weight)

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; S is the number of the decoder's positions by default, T 64 or S."""
        targets = self.config.targets
        capacity = targets if max_sequence is None else max_sequence
        if sequence is None:
            sequence = min(DEFAULT_SEQUENCE, capacity)
        check_size("batch", batch)
        check_size("sequence", sequence, capacity, f"max_sequence ({capacity})")
        check_size("max_sequence", capacity, targets, "the decoder's positions (max_target_positions)")
        return CompileProfile(name="forward", batch=batch, sequence=sequence, max_sequence=capacity, dtype=self.dtype)

    def tied(self) -> dict[str, str]:
        """Returns the head's name, which some checkpoints store twice."""
        return {} if _HEAD in self.config.untied else {_HEAD: self.decoder.embed_tokens.weight.path}

    def untied(self) -> dict[str, str]:
        """Returns the head if the checkpoint stores it with values of its own."""
        return {name: name for name in self.config.untied}


class AlignedWhisper(WhisperForConditionalGeneration):
    """Whisper with known alignment heads.

    ``align(token_ids [B,T], layers.0.cross_key, ..)``, with what ``encode`` gives, gives ``weights`` f32 [B,M,T,S']:
    where the heads look when they take each token. T is the greatest length of a window's tokens.
    """

    ENTRY_POINTS = (*WhisperForConditionalGeneration.ENTRY_POINTS, ALIGN)
    DEFAULT_ENTRY_POINTS = (*WhisperForConditionalGeneration.DEFAULT_ENTRY_POINTS, ALIGN)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``."""
        if profile.name != ALIGN:
            return super().entry_point(profile)
        last = self.config.alignment[-1][0]  # its values change no weight
        names = [*self.cross_specs(profile).items()][: 2 * last + 1]

        def align(ctx: ExecutionContext, token_ids: Tensor, *given: Tensor) -> Mapping[str, Tensor]:
            crosses = [KVCache(*given[2 * index : 2 * index + 2]) for index in range(last)]
            return {"weights": self.decoder.alignment(ctx, token_ids, crosses, given[-1])}

        tokens = Argument("token_ids", TensorSpec((profile.batch, profile.capacity), "i32"))
        return EntryPoint(ALIGN, align, (tokens, *(Argument(name, spec, axes=HEAD_AXES) for name, spec in names)))


def _make(config: WhisperConfig, dtype: DType | str, layers: int | None) -> WhisperForConditionalGeneration:
    shorter = config if layers is None else config.first_layers(layers)
    return (AlignedWhisper if shorter.alignment else WhisperForConditionalGeneration)(config, dtype, layers)


def layer_names(ours: str, stored: str) -> dict[str, str]:
    """Returns the stored names of a layer's modules, of those that encoder and decoder have, as fairseq has them."""
    return {
        f"{ours}.self_attn.o_proj": f"{stored}.self_attn.out_proj",
        f"{ours}.attention_norm": f"{stored}.self_attn_layer_norm",
        f"{ours}.mlp.up_proj": f"{stored}.fc1",
        f"{ours}.mlp.down_proj": f"{stored}.fc2",
        f"{ours}.mlp_norm": f"{stored}.final_layer_norm",
        **{f"{ours}.self_attn.{part}_proj": f"{stored}.self_attn.{part}_proj" for part in "qkv"},
    }


_CROSS: Final = "decoder.layers.{}.encoder_attn"
_KEYS: Final = RenamedModules(
    {
        **layer_names("encoder.stack.layers.{}", "encoder.layers.{}"),
        **layer_names("decoder.layers.{}", "decoder.layers.{}"),
        **{f"decoder.layers.{{}}.cross_attn.{part}_proj": f"{_CROSS}.{part}_proj" for part in "qkv"},
        "decoder.layers.{}.cross_attn.o_proj": f"{_CROSS}.out_proj",
        "decoder.layers.{}.cross_norm": f"{_CROSS}_layer_norm",
        "encoder.norm": "encoder.layer_norm",
        "decoder.norm": "decoder.layer_norm",
    },
    above=("model.",),
)

WHISPER: Final = ModelFamily(
    "WhisperForConditionalGeneration",
    "whisper",
    lambda fields: read_whisper(fields, "WhisperForConditionalGeneration"),
    _make,
    lambda config: _KEYS,
    "*coder.layers.{}",
)
