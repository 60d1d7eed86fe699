"""Decoders: embedding, layers of the family's kind, final norm and head."""

from collections.abc import Sequence
from typing import Any

from lang_core import DType, EntryPoint, ExecutionContext, Module, OpError, Repeated, Tensor
from transformer_core._cache import Cache, CacheLayout
from transformer_core._embedding import Embedding
from transformer_core._gated_delta_net import DeltaState
from transformer_core._kv_cache import KVCache, RingCache, ring_layout
from transformer_core._linear import Linear
from transformer_core._logits import logits_of
from transformer_core._step import Step, make_step
from transformer_core.models._config import DecoderConfig, family_of
from transformer_core.models._entry_points import ENTRY_POINTS, decoder_entry_point, decoder_sizes
from transformer_core.models._layer import norm
from transformer_core.models._model import Model, Sizes, check_size

Caches = tuple[Cache, ...]


class Decoder(Module):
    """Embedding, layers and final norm: what the checkpoint's keys have below ``model.``."""

    def __init__(self, config: DecoderConfig, dtype: DType) -> None:
        self.embed_tokens = Embedding(config.vocabulary, config.hidden, dtype=dtype)
        make = family_of(config).layer
        self._make, self._count = lambda index: make(config, index, dtype), config.layers
        self._windows = config.windows
        self.layers = Repeated(self._count, self._make)
        self.norm = norm(config, dtype)
        self.embedding_scale = config.embedding_scale
        learned = config.learned_positions
        self.embed_positions = Embedding(learned, config.hidden, dtype=dtype) if learned else None

    def forward(
        self, ctx: ExecutionContext, token_ids: Tensor, step: Step, caches: Sequence[Cache] | None = None
    ) -> tuple[Tensor, Caches]:
        """Runs the layers, each in a block of its own.

        Args:
            ctx: where to compute.
            token_ids: i32 [B, T].
            step: what the layers share.
            caches: one per layer, or None.

        Returns:
            The residual stream [B, T, D] before the final norm, and the updated caches (none without caches).
        """
        x = self.embed(ctx, token_ids, step)
        updated: list[Cache] = []
        for index, layer in enumerate(self.layers):
            with ctx.block(layer.path):
                x, cache = layer(ctx, x, step, None if caches is None else caches[index])
            if cache is not None:
                updated.append(cache)
        return x, tuple(updated)

    def embed(self, ctx: ExecutionContext, token_ids: Tensor, step: Step) -> Tensor:
        """token_ids i32 [B, T]: the residual stream before the first layer, [B, T, D]."""
        x = self.embed_tokens(ctx, token_ids)
        if self.embedding_scale != 1.0:
            x = ctx.ops.mul(x, self.embedding_scale)
        return x if self.embed_positions is None else ctx.ops.add(x, self.embed_positions(ctx, step.positions))

    def cache_layouts(self, batch: int, capacity: int, ring_tokens: int | None = None) -> tuple[CacheLayout, ...]:
        """One per layer; see ``DecoderLM.cache_layouts``."""
        layouts = tuple(self._make(index).cache_layout(batch, capacity) for index in range(self._count))
        if ring_tokens is None:
            return layouts
        both = zip(layouts, self._windows, strict=True)
        return tuple(ring_layout(layout, window, ring_tokens) for layout, window in both)


class DecoderLM(Model[DecoderConfig]):
    """A decoder with a language-model head. Parameter paths are the keys of Hugging Face's checkpoints.

    Args:
        config: the sizes.
        dtype: of parameters, activations and caches. With f16 and bf16, norms, RoPE and softmax are computed in f32
            and logits are f32.
        num_layers: only so many of the first layers; all where None.

    Raises:
        ConfigError: there are not so many layers, or the dtype is no floating one.
    """

    ENTRY_POINTS = ENTRY_POINTS
    DEFAULT_ENTRY_POINTS = ("prefill", "decode")

    def __init__(self, config: DecoderConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        config = self.config
        self.model = Decoder(config, self.dtype)
        self.lm_head = (
            None if config.tied else Linear(config.hidden, config.vocabulary, bias=config.head_bias, dtype=self.dtype)
        )

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Logits f32 [B, T, V] of whole sequences, token_ids i32 [B, T], without a cache."""
        x, _ = self.model(ctx, token_ids, self.step(ctx, token_ids.shape[1]))
        return self.logits(ctx, x)

    def extend(
        self,
        ctx: ExecutionContext,
        token_ids: Tensor,
        position: Tensor,
        caches: Sequence[Cache],
        last: Tensor | None = None,
        *,
        every_row: bool = False,
    ) -> tuple[Tensor, Caches]:
        """Appends tokens to the sequences in the caches.

        Args:
            ctx: where to compute.
            token_ids: i32 [B, T].
            position: i32 of rank 0, that of the first token: ``position + T`` must not exceed the caches' capacity. Or
                i32 [B], for sequences of different lengths: ``position + last`` must be below the capacity then.
            caches: one per layer. Entries from ``position`` on are written before they are read.
            last: as position, the row of the last token that counts; rows after it are padding. T - 1 where None. With
                a position per sequence padding leaves the caches alone, and -1 says that no token counts.
            every_row: whether logits of all rows are wanted.

        Returns:
            Logits f32 [B, V] of row ``last``, or [B, T, V] of every row; and the updated caches.

        Raises:
            OpError: there is not one cache per layer.
        """
        ops, config = ctx.ops, self.config
        if len(caches) != config.layers:
            raise OpError(f"{config.architecture} has {config.layers} layers, found {len(caches)} caches")
        batch, queries = token_ids.shape
        length = None
        if config.rope.scaling.depends_on_length:
            length = ops.add(ops.add(position, queries - 1 if last is None else last), 1)
        per_row = position.ndim > 0
        remembers = any(isinstance(cache, DeltaState) for cache in caches)
        step = self.step(
            ctx,
            queries,
            **_capacities(config.windows, caches),
            batch=batch,
            position=position,
            length=length,
            count=ops.add(last, 1) if last is not None and (remembers or per_row) else None,
        )
        x, updated = self.model(ctx, token_ids, step, caches)
        if not every_row:
            x = _row(ctx, x, last)
        return self.logits(ctx, x), updated

    def step(self, ctx: ExecutionContext, queries: int, **known: Any) -> Step:
        """What the layers share for T new tokens; ``known`` as for ``make_step``."""
        config = self.config
        return make_step(ctx, config.rope, config.windows, queries, local_rope=config.local_rope, **known)

    def logits(self, ctx: ExecutionContext, x: Tensor) -> Tensor:
        """The residual stream [.., D]: normed, times the head, f32 [.., V]."""
        normed = ctx.tag(self.model.norm(ctx, x), "model.norm.output")
        weight = self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight
        bias = None if self.lm_head is None else self.lm_head.bias
        return logits_of(ctx, normed, weight, bias, scale=self.config.logits_scale, softcap=self.config.logits_softcap)

    def cache_layouts(self, batch: int, capacity: int, ring_tokens: int | None = None) -> tuple[CacheLayout, ...]:
        """Of each layer's cache, for B sequences of up to S tokens.

        Args:
            batch: B.
            capacity: S.
            ring_tokens: where given, layers with a window have rings (``RingCache``) for calls that append up to so
                many tokens, if these are smaller.
        """
        return self.model.cache_layouts(batch, capacity, ring_tokens)

    def sizes(self, batch: int, sequence: int | None, max_sequence: int | None) -> Sizes:
        """As ``decoder_sizes`` says."""
        return decoder_sizes(self, batch, sequence, max_sequence)

    def entry_point(self, name: str, sizes: Sizes) -> EntryPoint:
        """As ``decoder_entry_point`` says."""
        return decoder_entry_point(self, name, sizes)

    def tied(self) -> dict[str, str]:
        """The head, where it is the embedding."""
        return {} if self.lm_head is not None else {"lm_head.weight": self.model.embed_tokens.weight.path}

    def check_caches(self, sizes: Sizes) -> None:
        """Every form of them is there.

        Raises:
            ConfigError: there are fewer places than a call of ``score`` takes tokens.
        """
        if sizes.score_tokens is not None:
            check_size("score_tokens", sizes.score_tokens, sizes.max_sequence, "the positions that caches hold")


def _capacities(windows: Sequence[int | None], caches: Sequence[Cache]) -> dict[str, Any]:
    """What ``make_step`` is to know of the caches."""
    kept = [(window, each) for window, each in zip(windows, caches, strict=True) if isinstance(each, KVCache)]
    rings = {window: each.capacity for window, each in kept if isinstance(each, RingCache) and window is not None}
    whole = next((each.capacity for _, each in kept if not isinstance(each, RingCache)), None)
    return {"keys": whole, "rings": rings}


def _row(ctx: ExecutionContext, x: Tensor, last: Tensor | None) -> Tensor:
    """x [B, T, D]: its row ``last``, one for all sequences or one for each, [B, D]."""
    ops = ctx.ops
    batch, queries, size = x.shape
    if queries == 1:
        return ops.reshape(x, (batch, size))
    if last is None or not last.ndim:
        x = ops.dynamic_slice(x, (0, queries - 1 if last is None else last, 0), (batch, 1, size))
        return ops.reshape(x, (batch, size))
    rows = ops.add(ops.clamp(last, 0, queries - 1), ops.mul(ops.iota((batch,)), queries))
    return ops.take(ops.reshape(x, (batch * queries, size)), rows)
