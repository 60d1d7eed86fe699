"""Decoders: embedding, layers of the family's kind, final norm and head."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from lang_core import ConfigError, DType, EntryPoint, ExecutionContext, Module, Tensor
from transformer_core.family._altup_layer import copies_made, copies_merged
from transformer_core.family._config import DecoderConfig, family_of
from transformer_core.family._layer import cache_owner, norm
from transformer_core.family._model import DEFAULT_SEQUENCE, Model, check_size
from transformer_core.family._outer import TokenType, Transform
from transformer_core.family._per_layer import PER_LAYER, per_layer_inputs
from transformer_core.flow import CompileProfile, ModelFlow
from transformer_core.layers._linear import Linear

DEFAULT_CAPACITY: Final = 2048
"""The most positions that caches hold where the caller does not say."""

# The preset of each entry point, and what it says besides.
_PRESETS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "forward": ("training", {}),
    "prefill": ("prefill", {"padded": True, "next_ids": True}),
    "decode": ("decode", {"next_ids": True}),
    "verify": ("verify", {"next_ids": True}),
}


_SLOT_CHUNKS: Final = (32, 8)


def sized_names(name: str, largest: int, sizes: Sequence[int]) -> dict[str, int]:
    """Returns the sizes of an entry point by name: the largest as it is, smaller ones with their size.

    >>> sized_names("decode", 8, [1, 2, 4, 8])
    {'decode': 8, 'decode_1': 1, 'decode_2': 2, 'decode_4': 4}
    """
    return {name: largest, **{f"{name}_{size}": size for size in sizes if size < largest}}


def decoder_flow(
    config: DecoderConfig,
    embedded: ModelFlow | None = None,
    normed: ModelFlow | None = None,
    *,
    rows: Sequence[str] = (),
) -> ModelFlow:
    """Returns the recipe of a decoder of any family; its stages are named as Hugging Face's checkpoints name tensors.

    Args:
        config: sizes and kinds of the layers.
        embedded: stages after the embedding of tokens, such as those that put pictures into their places.
        normed: stages after the final norm, which then goes over all tokens.
        rows: names of values [L, ..] that ``embedded`` keeps, of which layer i takes row i.

    >>> from transformer_core.models import DecoderConfig, decoder_flow
    >>> config = DecoderConfig.from_hf({
    ...     "architectures": ["GPT2LMHeadModel"], "vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 2,
    ...     "n_positions": 32, "activation_function": "gelu_new"})
    >>> decoder_flow(config).names()[1:]
    ('model', 'model.embed_tokens', 'model.embed_positions', 'model.layers', 'model.norm', 'lm_head')
    """
    layer = family_of(config).layer
    below = (
        ModelFlow("decoder")
        .token_embed(config.vocabulary, _embedded(config), scale=config.embedding_scale)
        .then(embedded or ModelFlow("none"), *_between(config))
        .repeat_layers(
            config.layers,
            lambda build: layer(config, build.index, build.dtype),
            rows=(*(() if config.per_layer is None else (PER_LAYER,)), *rows),
        )
        .then(ModelFlow("none") if config.altup is None else copies_merged(config, config.altup))
    )
    norm_of_all = ModelFlow("norm")
    if config.final_norm:
        norm_of_all = norm_of_all.final_norm(lambda build: norm(config, build.dtype), name="model.norm")
    last = ModelFlow("last").last_token()
    after = (last, norm_of_all) if normed is None else (norm_of_all, normed, last)
    return begin(config).include("model", below).then(*after, head(config))


def begin(config: DecoderConfig) -> ModelFlow:
    """Returns the first stages of a decoder: its input, and the inputs that all layers share."""
    return (
        ModelFlow(config.architecture)
        .input("token_ids", ("B", "T"), "i32")
        .rope_tables(config.rope, config.windows, config.local_rope, chunked=config.chunked)
    )


def head(config: DecoderConfig) -> ModelFlow:
    """Returns the output projection of a decoder."""
    outer, size = config.outer, None
    flow = ModelFlow("head")
    if outer is not None and outer.transform is not None:
        activation, size = outer.transform, outer.transformed
        flow = flow.stage("transform", lambda build: Transform(config, activation, outer, build.dtype))
    return flow.lm_head(
        tied=config.tied, bias=config.head_bias, scale=config.logits_scale, softcap=config.logits_softcap, size=size
    )


def _embedded(config: DecoderConfig) -> int:
    """Returns the size of a token's embedding."""
    return config.hidden if config.outer is None else config.outer.embedding


def _between(config: DecoderConfig) -> Iterator[ModelFlow]:
    """Yields the recipes between the embedding and the layers."""
    if config.outer is not None and config.outer.token_types:
        yield ModelFlow("types").stage("embed_types", lambda build: TokenType(build.size, build.dtype))
    if config.learned_positions:
        yield ModelFlow("positions").position_embed(config.learned_positions)
    if config.first_sinusoid is not None:
        yield ModelFlow("positions").sinusoidal_positions(config.first_sinusoid, paired=config.paired_sinusoids)
    if config.embedding_norm:
        yield ModelFlow("norm").final_norm(
            lambda build: norm(config, build.dtype, _embedded(config)), name="embed_norm"
        )
    if _embedded(config) != config.hidden:
        yield ModelFlow("projection").stage(
            "embed_projection", lambda build: Linear(_embedded(config), config.hidden, bias=True, dtype=build.dtype)
        )
    if config.per_layer is not None:
        yield per_layer_inputs(config, config.per_layer)
    if config.altup is not None:
        yield copies_made(config, config.altup)


class DecoderLM(Model[DecoderConfig]):
    """Decoder with a language-model head. Parameter paths are the keys of Hugging Face's checkpoints.

    Each entry point is ``decoder_flow(config)`` built for a profile. Token ids, ``position`` and ``last`` are i32,
    logits f32.

    ``forward(token_ids [B,T])`` gives logits [B,T,V] of whole sequences.

    ``prefill(token_ids [B,T], position, last, layers.0.key_cache [B,K,S,H], layers.0.value_cache, ..)`` appends T
    tokens at ``position`` and gives logits [B,V] of row ``last``, and the caches, which are donated. A longer prompt is
    run in chunks, at positions 0, T, ..; a shorter last chunk is padded on the right, with ``last`` the row of its last
    token: padding's entries in the caches are overwritten before a token sees them. ``position + T`` must not exceed S:
    a last chunk that would is started at ``S - T``, and repeats tokens that are in the caches already.

    Layers with a state have ``layers.i.conv_state`` and ``layers.i.delta_state`` in place of a cache. Padding leaves
    them unchanged, but tokens must not be passed twice.

    ``decode(token_ids [B,1], position, caches)`` appends one token.

    If frequencies of RoPE depend on the length of the sequence (longrope, dynamic NTK) and S is above the length at
    which they change, prefill, decode and score take ``length`` as well, behind ``position`` and ``last``: the tokens
    that the sequence has in all, of which a call appends a part. The call takes the frequencies of that length, or of
    the length after it if that is more. With ``slots``, they are those of S for all lengths.

    ``score(token_ids [B,T'], position, last, caches)`` is as prefill, but gives logits [B,T',V] of every row, to verify
    a draft. Rejected tokens are taken back by going on from an earlier position.

    The last result of each of these three is ``next_ids``, i32 [B], of score [B,T']: the index of the largest logit,
    the lowest of equal ones; -1 if the largest is NaN or infinite.

    With ``positions="per_row"``, ``position``, ``last`` and ``length`` are i32 [B]: sequences of different lengths in
    one batch. Padding leaves caches unchanged then, so that ``position + last`` below S is enough, and a row with
    ``last`` -1 is left unchanged.

    With ``window_caches="ring"``, a layer with a window of W keys keeps at most the last ``W + max(T, T') - 1``
    entries, if that is less than S, each at its position mod that number. A call may then begin at 0, or at
    most ``max(T, T')`` positions before the end of the written entries, padding included.

    With ``slots=N``, caches have N rows, and the entry points are those of a server: ``prefill_row(token_ids [1,T],
    row, position, last, caches)`` appends tokens to a row and gives logits [1,V], in several sizes of T
    (``prefill_row_32``); ``decode(token_ids [n,1], row [n], position [n], count [n], caches)`` appends a token to each
    of n distinct rows, in several n up to N (``decode_1``), and leaves rows with ``count`` 0 alone; with
    ``verify_tokens=T'``, ``verify_row(token_ids [1,T'], row, position, last, caches)`` appends as ``prefill_row`` does,
    and gives logits [1,T',V] of every token; ``copy_row(source, target, caches)``; and ``clear_row(row, caches)`` sets
    states to zeros, if there are some. Padding leaves caches unchanged.

    Args:
        config: sizes and kinds of the layers.
        dtype: dtype of parameters, activations and caches. With f16 and bf16, norms, RoPE and softmax are computed in
            f32 and logits are f32.
        num_layers: number of first layers to run; all if None.

    Raises:
        ConfigError: ``num_layers`` is out of range, the dtype is not floating, or a layer cannot read the keys and
            values of the layer that owns them.
    """

    model: Any  # the stages below ``model``: embed_tokens, layers, norm

    ENTRY_POINTS = tuple(_PRESETS)
    DEFAULT_ENTRY_POINTS = ("prefill", "decode")

    def __init__(self, config: DecoderConfig, dtype: DType | str = "f32", num_layers: int | None = None) -> None:
        super().__init__(config, dtype, num_layers)
        for index in range(self.config.layers):
            cache_owner(self.config, index)  # layers are made when they are asked for: too late for a clear error
        profile = CompileProfile(name="forward", sequence=1, dtype=self.dtype)
        self._recipe = self.recipe()
        self._flow = self._recipe.build(profile, root=self)
        self._changes: list[Callable[[Module], None]] = []

    def recipe(self) -> ModelFlow:
        """Returns the recipe of the entry points."""
        return decoder_flow(self.config)

    def forward(self, ctx: ExecutionContext, token_ids: Tensor) -> Tensor:
        """Computes logits f32 [B, T, V] of whole sequences, token_ids i32 [B, T], without a cache."""
        return self._flow.forward(ctx, token_ids)["logits"]

    def default_profile(self, batch: int, sequence: int | None, max_sequence: int | None) -> CompileProfile:
        """Returns a profile of the sizes; T is 64 by default, S the length of training, 2048 at most.

        Raises:
            ConfigError: a size is out of range: 1 <= T <= S <= the reach of RoPE.
        """
        reach, trained = self.config.rope.reach, self.config.rope.trained_length
        if sequence is None:
            sequence = min(DEFAULT_SEQUENCE, max_sequence or trained)
        capacity = max(sequence, min(trained, DEFAULT_CAPACITY)) if max_sequence is None else max_sequence
        for name, size in (("batch", batch), ("sequence", sequence), ("max_sequence", capacity)):
            check_size(name, size)
        if sequence > capacity:
            raise ConfigError(
                f"sequence: expected at most max_sequence ({capacity}); found {sequence}: lower one or raise the other"
            )
        why = "the positions that the model's RoPE reaches (max_position_embeddings and its scaling)"
        check_size("max_sequence", capacity, reach, why)
        return CompileProfile(name="forward", batch=batch, sequence=sequence, max_sequence=capacity, dtype=self.dtype)

    def profile(
        self, name: str, sizes: CompileProfile, *, positions: str, window_caches: str, verify_tokens: int | None
    ) -> CompileProfile:
        """Returns the profile of an entry point; entry points of the same sizes and options have the same caches."""
        if verify_tokens is not None:
            check_size("verify_tokens", verify_tokens, sizes.capacity, "the positions that caches hold")
        verified = verify_tokens or sizes.sequence
        preset, fields = _PRESETS[name]
        return CompileProfile.preset(
            preset,
            batch=sizes.batch,
            sequence={"decode": 1, "verify": verified}.get(name, sizes.sequence),
            max_sequence=sizes.max_sequence,
            dtype=sizes.dtype,
            positions=positions,
            ring_tokens=max(sizes.sequence, verified) if window_caches == "ring" else None,
            **fields,
        )

    def slot_profiles(
        self, slots: int, sizes: CompileProfile, *, window_caches: str, verify_tokens: int | None
    ) -> tuple[CompileProfile, ...]:
        """Returns the profiles of ``prefill_row`` and ``decode`` in several sizes, and of ``verify_row`` if asked for.

        All have the same caches.
        """
        check_size("slots", slots)
        if verify_tokens is not None:
            check_size("verify_tokens", verify_tokens, sizes.capacity, "the positions that caches hold")
        tokens = sizes.sequence
        common: dict[str, Any] = {
            "max_sequence": sizes.max_sequence,
            "dtype": sizes.dtype,
            "cache_rows": slots,
            "ring_tokens": max(tokens, verify_tokens or 1) if window_caches == "ring" else None,
            "next_ids": True,
        }
        prefills = [
            CompileProfile.preset("prefill", name=name, sequence=size, padded=True, **common)
            for name, size in sized_names("prefill_row", tokens, _SLOT_CHUNKS).items()
        ]
        decodes = [
            CompileProfile.preset("decode", name=name, batch=size, positions="per_row", **common)
            for name, size in sized_names("decode", slots, [2**power for power in range(slots.bit_length())]).items()
        ]
        verifies = [
            CompileProfile.preset("verify", name="verify_row", sequence=size, **common)
            for size in ([] if verify_tokens is None else [verify_tokens])
        ]
        return *prefills, *decodes, *verifies

    def visit(self, change: Callable[[Module], None]) -> None:
        """Calls ``change`` on the modules, on those of layers and of entry points each time they are made."""
        self._changes.append(change)
        super().visit(change)

    def entry_point(self, profile: CompileProfile) -> EntryPoint:
        """Builds the recipe for a profile; changes of this model's modules, such as packing, apply to its own."""
        return self.built(self._recipe, profile)

    def built(self, recipe: ModelFlow, profile: CompileProfile) -> EntryPoint:
        """Builds a recipe for a profile, with the changes of this model's modules."""
        built = recipe.build(profile)
        for change in self._changes:
            built.visit(change)
        return built.entry_point()

    def tied(self) -> dict[str, str]:
        """Returns the head's name, if it is the embedding."""
        return self._flow.tied()
