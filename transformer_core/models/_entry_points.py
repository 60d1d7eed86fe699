"""The functions that a causal language model offers."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from lang_core import Argument, ConfigError, EntryPoint, ExecutionContext, Tensor, TensorSpec
from transformer_core._cache import CacheLayout
from transformer_core._logits import NEXT_IDS, next_ids_of
from transformer_core._places import last_argument, position_argument
from transformer_core.models._model import DEFAULT_SEQUENCE, Sizes, check_size

if TYPE_CHECKING:
    from transformer_core.models._decoder import DecoderLM

ENTRY_POINTS: Final = ("forward", "prefill", "decode", "score")

# Positions that caches hold where nobody says how many, if the model was trained on as many.
DEFAULT_CAPACITY: Final = 2048


def decoder_entry_point(model: "DecoderLM", name: str, sizes: Sizes) -> EntryPoint:
    """An entry point of a causal language model.

    ``forward(token_ids [B,T])`` gives logits [B,T,V] of whole sequences.

    ``prefill(token_ids [B,T], position, last, layers.0.key_cache [B,K,S,H], layers.0.value_cache, ..)`` appends T
    tokens at ``position`` and gives logits [B,V] of row ``last``, and the caches, which are donated. A longer prompt is
    run in chunks, at positions 0, T, ..; a shorter last chunk is padded on the right, with ``last`` the row of its last
    token: what padding leaves in the caches is overwritten before it can be seen. ``position + T`` must not exceed S:
    a last chunk that would is started at ``S - T``, and repeats tokens that are in the caches already.

    Layers with a state have ``layers.i.conv_state`` and ``layers.i.delta_state`` in place of a cache. Padding leaves
    them alone, but no token may be given twice.

    ``decode(token_ids [B,1], position, caches)`` appends one token.

    ``score(token_ids [B,T'], position, last, caches)`` is as prefill, but gives logits [B,T',V] of every row: what
    verifies a draft. Tokens that are turned down are taken back by going on from an earlier position.

    The last result of each of these three is ``next_ids``, i32 [B], of score [B,T']: the index of the largest logit,
    the lowest of equal ones; -1 where the largest is NaN or infinite.

    Token ids, ``position`` and ``last`` are i32, logits f32.

    With ``positions="per_row"``, ``position`` and ``last`` are i32 [B]: sequences of different lengths in one batch.
    Padding leaves caches alone then, so that ``position + last`` below S is enough, and a row whose ``last`` is -1 is
    left as it is.

    With ``window_caches="ring"``, a layer whose queries see W keys keeps no more than the last ``W + max(T, T') - 1``
    entries, if that is less than S, each at its position mod that number. A call may then begin at 0, or at
    most ``max(T, T')`` positions before the end of what was written, padding included.

    Args:
        model: the model.
        name: of ``ENTRY_POINTS``.
        sizes: B; T of forward and prefill; S, the capacity of the caches; T' of score.
    """
    batch, sequence, scored = sizes.batch, sizes.sequence, sizes.score_tokens or sizes.sequence
    if name == "forward":
        return _forward(model, batch, sequence)
    most = max(sequence, scored)  # whatever the name: entry points made apart have the same caches
    layouts = model.cache_layouts(batch, sizes.max_sequence, most if sizes.window_caches == "ring" else None)
    tokens = {"prefill": sequence, "decode": 1, "score": scored}[name]
    per_row = sizes.positions == "per_row"
    return _extend(model, layouts, name, tokens, batch=batch, capacity=sizes.max_sequence, per_row=per_row)


def decoder_sizes(model: "DecoderLM", batch: int, sequence: int | None, max_sequence: int | None) -> Sizes:
    """T is 64 where it is not said, S what the model was trained on, 2048 at most; neither more than S can be.

    Raises:
        ConfigError: a size is out of range: 1 <= T <= S <= what RoPE reaches.
    """
    reach, trained = model.config.rope.reach, model.config.rope.trained_length
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
    return Sizes(batch, sequence, capacity)


def _forward(model: "DecoderLM", batch: int, sequence: int) -> EntryPoint:
    def forward(ctx: ExecutionContext, token_ids: Tensor) -> Mapping[str, Tensor]:
        return {"logits": model(ctx, token_ids)}

    return EntryPoint("forward", forward, (_token_ids(batch, sequence),))


def _extend(
    model: "DecoderLM",
    layouts: Sequence[CacheLayout],
    name: str,
    tokens: int,
    *,
    batch: int,
    capacity: int,
    per_row: bool,
) -> EntryPoint:
    """``prefill`` and ``score``, with ``last``, or ``decode``, without."""
    places = _places_of(name, tokens, capacity, batch if per_row else None)
    specs = {f"layers.{i}.{part}": spec for i, layout in enumerate(layouts) for part, spec in layout.specs.items()}

    def extend(ctx: ExecutionContext, token_ids: Tensor, *others: Tensor) -> Mapping[str, Tensor]:
        position, *last = others[: len(places)]
        parts = iter(others[len(places) :])
        caches = [layout.make(*itertools.islice(parts, len(layout.specs))) for layout in layouts]
        logits, updated = model.extend(ctx, token_ids, position, caches, *last, every_row=name == "score")
        tensors = [tensor for cache in updated for tensor in cache.tensors]
        caches_after = dict(zip(specs, tensors, strict=True))
        return {"logits": logits, **caches_after, NEXT_IDS: next_ids_of(ctx, logits)}

    arguments = (
        _token_ids(batch, tokens),
        *places,
        *(Argument(cache, spec, alias_result=cache) for cache, spec in specs.items()),
    )
    return EntryPoint(name, extend, arguments)


def _places_of(name: str, tokens: int, capacity: int, rows: int | None) -> tuple[Argument, ...]:
    """``position``, and but for decode ``last``: numbers for all rows, or one for each."""
    position = position_argument(tokens, capacity, rows)
    return (position,) if name == "decode" else (position, last_argument(tokens, rows))


def _token_ids(batch: int, tokens: int) -> Argument:
    return Argument("token_ids", TensorSpec((batch, tokens), "i32"))
