"""Encoder-decoders: entry points of models with a decoder that attends to an encoder's states."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from lang_core import Argument, EntryPoint, ExecutionContext, Tensor, TensorSpec, f32
from transformer_core._names import NEXT_IDS
from transformer_core.family._config import DecoderConfig
from transformer_core.family._model import Model, ModelConfig
from transformer_core.flow import CompileProfile
from transformer_core.layers._kv_cache import HEAD_AXES, KVCache, cache_spec
from transformer_core.layers._logits import next_ids_of
from transformer_core.layers._masks import mask_bias
from transformer_core.models.encoders._stack import StackConfig

SOURCE_BIAS: Final = "source_bias"
"""Name of the result of ``encode`` that hides padding from the decoder."""


class EncoderDecoderConfig(ModelConfig, Protocol):
    """Configuration of an encoder-decoder.

    Attributes:
        decoder: configuration of the decoder's layers.
    """

    @property
    def decoder(self) -> StackConfig | DecoderConfig: ...


ConfigT = TypeVar("ConfigT", bound=EncoderDecoderConfig)


class EncoderDecoder(Model[ConfigT], Generic[ConfigT]):
    """Model of an encoder, and a decoder that attends to its states.

    ``encode(sources)`` gives ``last_hidden_state`` f32 [B,S',D], the encoder's states, and for each layer of the
    decoder their keys and values: ``layers.i.cross_key`` and ``layers.i.cross_value`` [B,N,S',H]; if sources have
    padding, ``source_bias`` f32 [B,S'], too, which hides it.

    ``prefill(token_ids [B,T], position, last, layers.0.key_cache [B,N,S,H], layers.0.value_cache, .., what encode gives
    beside the states)`` appends tokens as a decoder's does (``DecoderLM``) and gives logits [B,V] of row ``last``, and
    the caches. ``decode(token_ids [B,1], position, ..)`` appends one token. Caches are donated; the results of encode
    are kept. ``forward`` gives logits [B,T,V] of whole sequences. Integers are i32, logits f32.
    """

    ENTRY_POINTS = ("forward", "encode", "prefill", "decode")
    DEFAULT_ENTRY_POINTS = ("encode", "prefill", "decode")

    @abstractmethod
    def source_arguments(self, profile: CompileProfile) -> tuple[Argument, ...]:
        """Returns the arguments of the encoder."""

    @abstractmethod
    def source_tokens(self, profile: CompileProfile) -> int:
        """Returns S', the number of the encoder's states."""

    @abstractmethod
    def target_tokens(self, profile: CompileProfile) -> tuple[str, int]:
        """Returns name and T of the decoder's tokens in ``forward``."""

    @abstractmethod
    def encoded(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor:
        """Computes the encoder's states [B, S', D]."""

    @abstractmethod
    def crosses(self, ctx: ExecutionContext, states: Tensor) -> tuple[KVCache, ...]:
        """Computes keys and values of the states, of each layer of the decoder."""

    @abstractmethod
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

    @abstractmethod
    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """Maps x [.., D] to logits f32 [.., V]."""

    def source_bias(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor | None:
        """Returns f32 [B, S'] that hides padding; None if sources have none."""
        del ctx, sources
        return None

    def prefill_tokens(self, profile: CompileProfile) -> int:
        """Returns T of ``prefill``."""
        return profile.sequence

    @property
    def _has_source_bias(self) -> bool:
        return type(self).source_bias is not EncoderDecoder.source_bias

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds one of ``ENTRY_POINTS``."""
        makers: dict[str, Callable[[CompileProfile], EntryPoint]] = {
            "forward": self._forward,
            "encode": self._encode,
            "prefill": lambda sizes: self._extend("prefill", sizes, self.prefill_tokens(sizes), ("position", "last")),
            "decode": lambda sizes: self._extend("decode", sizes, 1, ("position",)),
        }
        return makers[profile.name](profile)

    def whole(self, ctx: ExecutionContext, sources: Sequence[Tensor], token_ids: Tensor) -> Tensor:
        """Computes logits f32 [B, T, V] of whole sequences."""
        crosses = self.crosses(ctx, self.encoded(ctx, *sources))
        return self.logits(ctx, self.decoded(ctx, token_ids, crosses, self.source_bias(ctx, *sources))[0])

    def _forward(self, profile: CompileProfile) -> EntryPoint:
        name, tokens = self.target_tokens(profile)

        def forward(ctx: ExecutionContext, *inputs: Tensor) -> Mapping[str, Tensor]:
            return {"logits": self.whole(ctx, inputs[:-1], inputs[-1])}

        targets = Argument(name, TensorSpec((profile.batch, tokens), "i32"))
        return EntryPoint("forward", forward, (*self.source_arguments(profile), targets))

    def _encode(self, profile: CompileProfile) -> EntryPoint:
        names = list(self.cross_specs(profile))

        def encode(ctx: ExecutionContext, *sources: Tensor) -> Mapping[str, Tensor]:
            states, bias = self.encoded(ctx, *sources), self.source_bias(ctx, *sources)
            tensors = [tensor for cross in self.crosses(ctx, states) for tensor in cross.tensors]
            results = {"last_hidden_state": ctx.ops.cast(states, f32), **dict(zip(names, tensors, strict=True))}
            return results if bias is None else {**results, SOURCE_BIAS: bias}

        return EntryPoint("encode", encode, self.source_arguments(profile))

    def _extend(self, name: str, profile: CompileProfile, tokens: int, scalars: tuple[str, ...]) -> EntryPoint:
        caches, crosses = self._cache_specs(profile), self.cross_specs(profile)
        kept = dict(crosses)
        if self._has_source_bias:
            kept |= {SOURCE_BIAS: TensorSpec((profile.batch, self.source_tokens(profile)), "f32")}

        def extend(ctx: ExecutionContext, token_ids: Tensor, *others: Tensor) -> Mapping[str, Tensor]:
            position, *last = others[: len(scalars)]
            known, given = others[len(scalars) :][: len(caches)], others[len(scalars) + len(caches) :]
            bias = given[-1] if self._has_source_bias else None
            crossed = tuple(_pairs(given[: len(given) - (bias is not None)]))
            x, updated = self.decoded(ctx, token_ids, crossed, bias, tuple(_pairs(known)), position)
            if last:
                x = ctx.ops.dynamic_slice(x, (0, last[0], 0), (profile.batch, 1, x.shape[2]))
            logits = self.logits(ctx, ctx.ops.reshape(x, (profile.batch, x.shape[2])))
            tensors = [tensor for cache in updated for tensor in cache.tensors]
            return {"logits": logits, **dict(zip(caches, tensors, strict=True)), NEXT_IDS: next_ids_of(ctx, logits)}

        arguments = (
            Argument("token_ids", TensorSpec((profile.batch, tokens), "i32")),
            *(Argument(scalar, TensorSpec((), "i32"), kind="scalar") for scalar in scalars),
            *(Argument(cache, spec, alias_result=cache, axes=HEAD_AXES) for cache, spec in caches.items()),
            *(Argument(given, spec, axes=HEAD_AXES if given in crosses else None) for given, spec in kept.items()),
        )
        return EntryPoint(name, extend, arguments)

    def _cache_specs(self, profile: CompileProfile) -> dict[str, TensorSpec]:
        return self._specs(profile.batch, profile.capacity, ("key_cache", "value_cache"))

    def cross_specs(self, profile: CompileProfile) -> dict[str, TensorSpec]:
        """Returns the specs of the keys and values of the encoder's states, of each layer of the decoder."""
        return self._specs(profile.batch, self.source_tokens(profile), ("cross_key", "cross_value"))

    def _specs(self, batch: int, length: int, parts: tuple[str, str]) -> dict[str, TensorSpec]:
        stack = self.config.decoder
        heads = stack.kv_heads if isinstance(stack, DecoderConfig) else stack.heads
        spec = cache_spec(batch, heads, length, stack.head_size or stack.hidden // stack.heads, self.dtype)
        return {f"layers.{index}.{part}": spec for index in range(stack.layers) for part in parts}


def _pairs(tensors: Sequence[Any]) -> Iterator[KVCache]:
    """Groups tensors into keys and values, layer by layer."""
    return map(KVCache, tensors[::2], tensors[1::2])


class TextToText(EncoderDecoder[ConfigT], Generic[ConfigT]):
    """Encoder-decoder from text to text: its sources are ``token_ids`` and ``attention_mask`` i32 [B, S']."""

    def source_arguments(self, profile: CompileProfile) -> tuple[Argument, ...]:
        """Returns the source's tokens and their mask."""
        spec = TensorSpec((profile.batch, profile.sequence), "i32")
        return Argument("token_ids", spec), Argument("attention_mask", spec)

    def source_tokens(self, profile: CompileProfile) -> int:
        """Returns S'."""
        return profile.sequence

    def target_tokens(self, profile: CompileProfile) -> tuple[str, int]:
        """Returns name and T of the decoder's tokens in ``forward``."""
        return "decoder_token_ids", profile.sequence

    def prefill_tokens(self, profile: CompileProfile) -> int:
        """Returns 1."""
        del profile
        return 1

    def source_bias(self, ctx: ExecutionContext, *sources: Tensor) -> Tensor | None:
        """Returns f32 [B, S'] that hides padding."""
        return mask_bias(ctx, ctx.ops.not_equal(sources[1], 0))
