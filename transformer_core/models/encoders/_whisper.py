"""Whisper (Radford et al. 2022, arXiv:2212.04356): speech to text by an encoder and a decoder that attends to it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lang_core import Argument, DType, EntryPoint, ExecutionContext, Module, Tensor, TensorSpec, f32
from transformer_core._convolution import Conv1d
from transformer_core._embedding import Embedding
from transformer_core._kv_cache import KVCache, cache_spec
from transformer_core._logits import NEXT_IDS, logits_of, next_ids_of
from transformer_core.checkpoints import RenamedModules
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, ModelFamily, check_size
from transformer_core.flow import CompileProfile
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


class WhisperForConditionalGeneration(Model[WhisperConfig]):
    """Whisper; the decoder's head is its embedding.

    ``encode(input_features f32 [B,mels,frames])`` gives ``last_hidden_state`` f32 [B,S',D], the encoder's states, and
    for each layer of the decoder their keys and values: ``layers.i.cross_key`` and ``layers.i.cross_value`` [B,N,S',H].

    ``prefill(token_ids [B,T], position, last, layers.0.key_cache [B,N,S,H], layers.0.value_cache, .., cross keys and
    values)`` appends tokens as a decoder's does (``DecoderLM``) and gives logits [B,V] of row ``last``, and
    the caches. ``decode(token_ids [B,1], position, caches, cross keys and values)`` appends one token. Caches are
    donated; cross keys and values are kept.

    ``forward(input_features, token_ids [B,T])`` gives logits [B,T,V] of whole sequences. Integers are i32, logits f32.
    """

    ENTRY_POINTS = ("forward", "encode", "prefill", "decode")
    DEFAULT_ENTRY_POINTS = ("encode", "prefill", "decode")

    def __init__(self, config: WhisperConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        self.encoder = WhisperEncoder(self.config, self.dtype)
        self.decoder = WhisperDecoder(self.config, self.dtype)

    def forward(self, ctx: ExecutionContext, input_features: Tensor, token_ids: Tensor) -> Tensor:
        """Maps input_features [B, mels, frames] and token_ids i32 [B, T] to logits f32 [B, T, V]."""
        crosses = self.decoder.cross_keys_values(ctx, self.encoder(ctx, input_features))
        x, _ = self.decoder(ctx, token_ids, crosses)
        return self.logits(ctx, x)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""
        return logits_of(ctx, x, self.decoder.embed_tokens.weight)

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

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``."""
        makers: dict[str, Callable[[CompileProfile], EntryPoint]] = {
            "forward": self._forward,
            "encode": self._encode,
            "prefill": self._prefill,
            "decode": self._decode,
        }
        return makers[profile.name](profile)

    def tied(self) -> dict[str, str]:
        """Returns the head's name, which some checkpoints store twice."""
        return {"proj_out.weight": self.decoder.embed_tokens.weight.path}

    def _forward(self, profile: CompileProfile) -> EntryPoint:
        def forward(ctx: ExecutionContext, input_features: Tensor, token_ids: Tensor) -> Mapping[str, Tensor]:
            return {"logits": self(ctx, input_features, token_ids)}

        return EntryPoint("forward", forward, (self._features(profile), _token_ids(profile.batch, profile.sequence)))

    def _encode(self, profile: CompileProfile) -> EntryPoint:
        names = list(self._crosses(profile))

        def encode(ctx: ExecutionContext, input_features: Tensor) -> Mapping[str, Tensor]:
            states = self.encoder(ctx, input_features)
            tensors = [tensor for cross in self.decoder.cross_keys_values(ctx, states) for tensor in cross.tensors]
            return {"last_hidden_state": ctx.ops.cast(states, f32), **dict(zip(names, tensors, strict=True))}

        return EntryPoint("encode", encode, (self._features(profile),))

    def _prefill(self, profile: CompileProfile) -> EntryPoint:
        return self._extend("prefill", profile, profile.sequence, ("position", "last"))

    def _decode(self, profile: CompileProfile) -> EntryPoint:
        return self._extend("decode", profile, 1, ("position",))

    def _extend(self, name: str, profile: CompileProfile, tokens: int, scalars: tuple[str, ...]) -> EntryPoint:
        caches, crosses = self._caches(profile), self._crosses(profile)

        def extend(ctx: ExecutionContext, token_ids: Tensor, *others: Tensor) -> Mapping[str, Tensor]:
            position, *last = others[: len(scalars)]
            kept, crossed = others[len(scalars) :][: len(caches)], others[len(scalars) + len(caches) :]
            x, updated = self.decoder(ctx, token_ids, tuple(_pairs(crossed)), tuple(_pairs(kept)), position)
            if last:
                x = ctx.ops.dynamic_slice(x, (0, last[0], 0), (profile.batch, 1, x.shape[2]))
            logits = self.logits(ctx, ctx.ops.reshape(x, (profile.batch, x.shape[2])))
            tensors = [tensor for cache in updated for tensor in cache.tensors]
            return {"logits": logits, **dict(zip(caches, tensors, strict=True)), NEXT_IDS: next_ids_of(ctx, logits)}

        arguments = (
            _token_ids(profile.batch, tokens),
            *(Argument(scalar, TensorSpec((), "i32"), kind="scalar") for scalar in scalars),
            *(Argument(cache, spec, alias_result=cache) for cache, spec in caches.items()),
            *(Argument(cross, spec) for cross, spec in crosses.items()),
        )
        return EntryPoint(name, extend, arguments)

    def _features(self, profile: CompileProfile) -> Argument:
        return Argument("input_features", TensorSpec((profile.batch, self.config.mels, self.config.frames), "f32"))

    def _caches(self, profile: CompileProfile) -> dict[str, TensorSpec]:
        return self._specs(profile.batch, profile.capacity, ("key_cache", "value_cache"))

    def _crosses(self, profile: CompileProfile) -> dict[str, TensorSpec]:
        return self._specs(profile.batch, self.config.sources, ("cross_key", "cross_value"))

    def _specs(self, batch: int, length: int, parts: tuple[str, str]) -> dict[str, TensorSpec]:
        stack = self.config.decoder
        spec = cache_spec(batch, stack.heads, length, stack.hidden // stack.heads, self.dtype)
        return {f"layers.{index}.{part}": spec for index in range(stack.layers) for part in parts}


def _pairs(tensors: tuple[Tensor, ...]) -> Iterator[KVCache]:
    """Groups tensors into keys and values, layer by layer."""
    return map(KVCache, tensors[::2], tensors[1::2])


def _token_ids(batch: int, tokens: int) -> Argument:
    return Argument("token_ids", TensorSpec((batch, tokens), "i32"))


def _layer_names(ours: str, stored: str) -> dict[str, str]:
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
        **_layer_names("encoder.stack.layers.{}", "encoder.layers.{}"),
        **_layer_names("decoder.layers.{}", "decoder.layers.{}"),
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
    WhisperForConditionalGeneration,
    lambda config: _KEYS,
    "*coder.layers.{}",
)
