"""The functions that a causal language model offers."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lang_core import Argument, ConfigError, EntryPoint, ExecutionContext, Tensor, TensorSpec, near_names
from transformer_core.models._decoder import DecoderLM

ENTRY_POINTS: Final = ("forward", "prefill", "decode")


def entry_points(
    model: DecoderLM,
    *,
    names: Sequence[str] = ("prefill", "decode"),
    batch: int = 1,
    sequence: int,
    max_sequence: int | None = None,
) -> tuple[EntryPoint, ...]:
    """The entry points of a model at fixed sizes.

    ``forward(token_ids [B,T])`` gives logits [B,T,V] of whole sequences.

    ``prefill(token_ids [B,T], position, last, layers.0.key_cache [B,K,S,H], layers.0.value_cache, ..)`` appends T
    tokens at ``position`` and gives logits [B,V] of row ``last``, and the caches, which are donated. A longer prompt is
    run in chunks, at positions 0, T, ..; a shorter last chunk is padded on the right, with ``last`` the row of its last
    token: what padding leaves in the caches is overwritten before it can be seen. ``position + T`` must not exceed S:
    a last chunk that would is started at ``S - T``, and repeats tokens that are in the caches already.

    Layers with a state have ``layers.i.conv_state`` and ``layers.i.delta_state`` in place of a cache. Padding leaves
    them alone, but no token may be given twice.

    ``decode(token_ids [B,1], position, caches)`` appends one token.

    Token ids, ``position`` and ``last`` are i32, logits f32.

    Args:
        model: the model.
        names: of the wanted ones, each once.
        batch: B.
        sequence: T of forward and prefill.
        max_sequence: S, the capacity of the caches; ``sequence`` where None.

    Raises:
        ConfigError: a name is unknown or repeated, or a size is out of range: 1 <= T <= S <= what RoPE reaches.
    """
    capacity = sequence if max_sequence is None else max_sequence
    _check_sizes(model, batch, sequence, capacity)
    _check_names(names)
    makers: dict[str, Callable[[], EntryPoint]] = {
        "forward": lambda: _forward(model, batch, sequence),
        "prefill": lambda: _extend(model, "prefill", batch, sequence, capacity),
        "decode": lambda: _extend(model, "decode", batch, 1, capacity),
    }
    return tuple(makers[name]() for name in names)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in ENTRY_POINTS:
            known = ", ".join(ENTRY_POINTS)
            raise ConfigError(f"entry point {name!r} is unknown: there are {known}{near_names(name, ENTRY_POINTS)}")
    if not names or len(set(names)) != len(names):
        raise ConfigError(f"entry points: expected at least one, each once; found {', '.join(names) or 'none'}")


def _check_sizes(model: DecoderLM, batch: int, sequence: int, capacity: int) -> None:
    for name, size in (("batch", batch), ("sequence", sequence), ("max_sequence", capacity)):
        if size < 1:
            raise ConfigError(f"{name}: expected 1 or more; found {size}")
    if sequence > capacity:
        raise ConfigError(
            f"sequence: expected at most max_sequence ({capacity}); found {sequence}: lower one or raise the other"
        )
    reach = model.config.rope.reach
    if reach is not None and capacity > reach:
        raise ConfigError(
            f"max_sequence: expected at most {reach}, the positions that the model's RoPE reaches "
            f"(max_position_embeddings and its scaling); found {capacity}: lower it"
        )


def _forward(model: DecoderLM, batch: int, sequence: int) -> EntryPoint:
    def forward(ctx: ExecutionContext, token_ids: Tensor) -> Mapping[str, Tensor]:
        return {"logits": model(ctx, token_ids)}

    return EntryPoint("forward", forward, (_token_ids(batch, sequence),))


def _extend(model: DecoderLM, name: str, batch: int, tokens: int, capacity: int) -> EntryPoint:
    """``prefill``, with the scalar ``last``, or ``decode``, without."""
    scalars = ("position", "last") if name == "prefill" else ("position",)
    layouts = model.cache_layouts(batch, capacity)
    specs = {f"layers.{i}.{part}": spec for i, layout in enumerate(layouts) for part, spec in layout.specs.items()}

    def extend(ctx: ExecutionContext, token_ids: Tensor, *others: Tensor) -> Mapping[str, Tensor]:
        position, *last = others[: len(scalars)]
        parts = iter(others[len(scalars) :])
        caches = [layout.make(*itertools.islice(parts, len(layout.specs))) for layout in layouts]
        logits, updated = model.extend(ctx, token_ids, position, caches, *last)
        tensors = [tensor for cache in updated for tensor in cache.tensors]
        return {"logits": logits, **dict(zip(specs, tensors, strict=True))}

    arguments = (
        _token_ids(batch, tokens),
        *(Argument(scalar, TensorSpec((), "i32"), kind="scalar") for scalar in scalars),
        *(Argument(cache, spec, alias_result=cache) for cache, spec in specs.items()),
    )
    return EntryPoint(name, extend, arguments)


def _token_ids(batch: int, tokens: int) -> Argument:
    return Argument("token_ids", TensorSpec((batch, tokens), "i32"))
