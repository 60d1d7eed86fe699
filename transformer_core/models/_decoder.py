"""Decoders: embedding, layers of the family's kind, final norm and head."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lang_core import DType, EntryPoint, ExecutionContext, OpError, Tensor, tag_name
from transformer_core._cache import Cache, CacheLayout
from transformer_core._kv_cache import ring_layout
from transformer_core.flow import BuiltFlow, CompileProfile, FlowInputs, ModelFlow, Rows
from transformer_core.models._config import DecoderConfig, family_of
from transformer_core.models._entry_points import ENTRY_POINTS, decoder_entry_point, decoder_sizes
from transformer_core.models._layer import cache_owner, norm
from transformer_core.models._model import Model, Sizes, check_size

Caches = tuple[Cache, ...]


def decoder_flow(config: DecoderConfig) -> ModelFlow:
    """The recipe of every decoder, whatever its family; the names of stages are the keys of Hugging Face's checkpoints.

    >>> from transformer_core.models import DecoderConfig, decoder_flow
    >>> config = DecoderConfig.from_hf({
    ...     "architectures": ["GPT2LMHeadModel"], "vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 2,
    ...     "n_positions": 32, "activation_function": "gelu_new"})
    >>> decoder_flow(config).names()[1:]
    ('model', 'model.embed_tokens', 'model.embed_positions', 'model.layers', 'model.norm', 'lm_head')
    """
    layer, learned = family_of(config).layer, config.learned_positions
    below = (
        ModelFlow("decoder")
        .token_embed(config.vocabulary, config.hidden, scale=config.embedding_scale)
        .then(ModelFlow("positions").position_embed(learned) if learned else ModelFlow("none"))
        .repeat_layers(config.layers, lambda build: layer(config, build.index, build.dtype))
    )
    return (
        ModelFlow(config.architecture)
        .input("token_ids", ("B", "T"), "i32")
        .rope_tables(config.rope, config.windows, config.local_rope)
        .include("model", below)
        .last_token()
        .final_norm(lambda build: norm(config, build.dtype), name="model.norm")
        .lm_head(tied=config.tied, bias=config.head_bias, scale=config.logits_scale, softcap=config.logits_softcap)
    )


class DecoderLM(Model[DecoderConfig]):
    """A decoder with a language-model head. Parameter paths are the keys of Hugging Face's checkpoints.

    Args:
        config: the sizes.
        dtype: of parameters, activations and caches. With f16 and bf16, norms, RoPE and softmax are computed in f32
            and logits are f32.
        num_layers: only so many of the first layers; all where None.

    Raises:
        ConfigError: there are not so many layers, the dtype is no floating one, or a layer cannot read the keys and
            values of the one that it is to.
    """

    model: Any  # the stages below ``model``: embed_tokens, layers, norm

    ENTRY_POINTS = ENTRY_POINTS
    DEFAULT_ENTRY_POINTS = ("prefill", "decode")

    def __init__(self, config: DecoderConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        for index in range(self.config.layers):
            cache_owner(self.config, index)  # layers are made when they are asked for: too late for a clear error
        profile = CompileProfile(name="forward", sequence=1, dtype=self.dtype)
        recipe = decoder_flow(self.config)
        self._flow = BuiltFlow(recipe.name, recipe.stages, self, profile, None)
        self._last = replace(profile, rows=Rows.LAST)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Logits f32 [B, T, V] of whole sequences, token_ids i32 [B, T], without a cache."""
        logits, _ = self._flow.run(ctx, FlowInputs({"token_ids": token_ids}))
        return logits.tensor

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
        if len(caches) != self.config.layers:
            raise OpError(f"{self.config.architecture} has {self.config.layers} layers, found {len(caches)} caches")
        layers = tag_name(self.path, "model.layers")
        kept = {f"{layers}.{index}": cache for index, cache in enumerate(caches)}
        inputs = FlowInputs({"token_ids": token_ids}, position, last, kept)
        logits, state = self._flow.run(ctx, inputs, None if every_row else self._last)
        return logits.tensor, tuple(state.slots.values())

    def cache_layouts(self, batch: int, capacity: int, ring_tokens: int | None = None) -> tuple[CacheLayout, ...]:
        """Of each layer's cache, for B sequences of up to S tokens.

        Args:
            batch: B.
            capacity: S.
            ring_tokens: where given, layers with a window have rings (``RingCache``) for calls that append up to so
                many tokens, if these are smaller.
        """
        layouts = tuple(layer.cache_layout(batch, capacity) for layer in self.model.layers)
        if ring_tokens is None:
            return layouts
        both = zip(layouts, self.config.windows, strict=True)
        return tuple(ring_layout(layout, window, ring_tokens) for layout, window in both)

    def sizes(self, batch: int, sequence: int | None, max_sequence: int | None) -> Sizes:
        """As ``decoder_sizes`` says."""
        return decoder_sizes(self, batch, sequence, max_sequence)

    def entry_point(self, name: str, sizes: Sizes) -> EntryPoint:
        """As ``decoder_entry_point`` says."""
        return decoder_entry_point(self, name, sizes)

    def tied(self) -> dict[str, str]:
        """The head, where it is the embedding."""
        return self._flow.registry.tied()

    def check_caches(self, sizes: Sizes) -> None:
        """Every form of them is there.

        Raises:
            ConfigError: there are fewer places than a call of ``score`` takes tokens.
        """
        if sizes.score_tokens is not None:
            check_size("score_tokens", sizes.score_tokens, sizes.max_sequence, "the positions that caches hold")
