"""Rotary position embeddings: tables from positions, and their application.

Shapes: R rotated dims, H head size; see the package for the other letters.
"""

import functools
from typing import Any

import numpy as np

from lang_core import EagerTensor, ExecutionContext, OpError, Tensor, TensorSpec, as_dtype, checked_choices, promote
from transformer_core.layers._rope_config import RopeConfig, RopeMode
from transformer_core.layers._rope_scaling import DynamicScaling, LongropeScaling

Array = np.ndarray[Any, Any]


def inverse_frequencies(config: RopeConfig, length: int | None = None) -> Array:
    """Returns the angle per position of each pair, f32 [R/2].

    Args:
        config: RoPE of the frequencies.
        length: length of the sequence, for the scalings ``dynamic`` and ``longrope``; ``config.trained_length``
            if None.
    """
    sequence = config.trained_length if length is None else length
    return config.scaling.frequencies(config.base, config.rotated, sequence).astype(np.float32)


def rope_tables(
    ctx: ExecutionContext,
    config: RopeConfig,
    positions: Tensor,
    length: Tensor | int | None = None,
    stored: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes cos and sin of every position's angles, laid out for ``apply_rope`` in ``config.mode``.

    Args:
        ctx: context that computes; nothing is cached between calls.
        config: RoPE of the tables.
        positions: i32 [..]; [3, ..] with sections (time, height, width).
        length: length of the sequence, an int or an i32 tensor of rank 0, or [B] for positions [B, T]; needed
            for the scalings ``dynamic`` and ``longrope``.
        stored: frequencies f32 [R/2] of the checkpoint (ESM), for pairs split by halves; the configuration's if None.

    Returns:
        Two f32 [.., R]. Both members of a pair have their angle's cos; the first one has -sin and the second one
        +sin, so that rotation is ``x * cos + swapped(x) * sin``.

    Raises:
        OpError: the scaling needs the length, or the positions lack the axis of the sections.
    """
    ops = ctx.ops
    if config.scaling.depends_on_length and length is None:
        raise OpError(f"rope_tables: {type(config.scaling).__name__} depends on the sequence's length: pass length=")
    frequencies = _frequencies(ctx, config, length) if stored is None else ops.concat((stored, stored), 0)
    angles = ops.mul(ops.reshape(ops.cast(positions, "f32"), (*positions.shape, 1)), frequencies)
    if config.sections:
        angles = _one_axis_per_frequency(ctx, config, angles)
    factor = config.attention_factor
    cos, sin = ops.cos(angles), ops.sin(angles)
    if factor != 1.0:
        cos = ops.mul(cos, factor)
    return cos, ops.mul(sin, ops.constant(_signs(config) * np.float32(factor)))


def _both(config: RopeConfig, per_pair: Array) -> Array:
    """Expands [.., R/2] to f32 [.., R]: a pair's value for both of its members, in the mode's layout."""
    if config.mode is RopeMode.SPLIT_HALF:
        return np.concatenate([per_pair, per_pair], -1, dtype=np.float32)
    return np.repeat(per_pair, 2, -1).astype(np.float32)


@functools.cache
def _signs(config: RopeConfig) -> Array:
    half = np.full(config.rotated // 2, -1 if config.clockwise else 1, np.float32)
    if config.mode is RopeMode.SPLIT_HALF:
        return np.concatenate([-half, half])
    return np.stack([-half, half], -1).reshape(-1)


def _frequencies(ctx: ExecutionContext, config: RopeConfig, length: Tensor | int | None) -> Tensor:
    """Returns f32 [R]: a constant if the length is known or unused, else computed; [B, 1, R] of length [B]."""
    ops, scaling = ctx.ops, config.scaling
    if not scaling.depends_on_length or length is None:
        return ops.constant(_both(config, inverse_frequencies(config)))
    if isinstance(length, int):
        return ops.constant(_both(config, inverse_frequencies(config, length)))
    if length.ndim:
        length = ops.reshape(length, (*length.shape, 1, 1))
    if isinstance(scaling, DynamicScaling):
        beyond = ops.cast(ops.maximum(ops.sub(length, scaling.trained), 0), "f32")
        ratio = ops.add(ops.mul(beyond, scaling.factor / scaling.trained), 1.0)
        grown = ops.pow(ratio, ops.constant(_both(config, scaling.exponents(config.rotated))))
        return ops.mul(ops.constant(_both(config, inverse_frequencies(config, scaling.trained))), grown)
    if isinstance(scaling, LongropeScaling):
        short, long = (
            ops.constant(_both(config, inverse_frequencies(config, scaling.original_length + beyond)))
            for beyond in (0, 1)
        )
        return ops.select(ops.greater(length, scaling.original_length), long, short)
    raise OpError(f"rope_tables: no rule for {type(scaling).__name__} at a length known only at run time")


def _one_axis_per_frequency(ctx: ExecutionContext, config: RopeConfig, angles: Tensor) -> Tensor:
    """Selects from [3, .., R] to [.., R]: each frequency follows its section's axis (Qwen2-VL, arXiv:2409.12191)."""
    if angles.ndim < 2 or angles.shape[0] != len(config.sections):
        raise OpError(f"rope_tables: sections need positions [3, ..]; found {list(angles.shape[:-1])}")
    if config.sections_interleaved:
        turn = np.arange(config.rotated // 2)
        axes = np.where(turn < 3 * np.array(config.sections)[turn % 3], turn % 3, 0)
    else:
        axes = np.repeat(np.arange(3), config.sections)
    chosen = _both(config, (np.arange(3)[:, None] == axes).astype(np.float32))
    mask = ctx.ops.constant(chosen.reshape(3, *[1] * (angles.ndim - 2), config.rotated))
    return ctx.ops.sum(ctx.ops.mul(angles, mask), 0)


@checked_choices
def apply_rope(ctx: ExecutionContext, x: Tensor, cos: Tensor, sin: Tensor, mode: RopeMode) -> Tensor:
    """Rotates the first R dims of each head: pair (a, b) becomes (a cos - b sin, a sin + b cos).

    Computed in f32 (wider if x is) and rounded once. Eagerly on strided views; while ``ctx.isRecording`` by ops.
    Both give the same bits.

    Args:
        ctx: context that computes.
        x: [.., H], rank 2 or more.
        cos: [.., R] from ``rope_tables``, broadcast to x's shape but for the last axis.
        sin: [.., R], as ``cos``.
        mode: layout of the pairs, the same as the tables'.

    Returns:
        x's shape and dtype; dims past R are x's.

    Raises:
        OpError: the tables do not fit x, or a dtype is not floating.
    """
    _check_tables(x, cos, sin)

    def body(x: Tensor, cos: Tensor, sin: Tensor, mode: RopeMode) -> Tensor:
        return _rotated(ctx, x, cos, sin, mode)

    return ctx.composite("rope", body, (x, cos, sin), (mode,))


def _check_tables(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Checks the arguments of ``apply_rope``."""
    rotated = cos.shape[-1] if cos.shape else 0
    fits = len(x.shape) >= 2 and 0 < rotated <= x.shape[-1] and rotated % 2 == 0 and cos.shape == sin.shape
    if not fits or not _broadcasts(cos.shape[:-1], x.shape[:-1]):
        raise OpError(
            f"apply_rope: expected x [.., H] of rank 2 or more, and cos and sin [.., R] that broadcast to it, with R "
            f"even and not above H; found x {list(x.shape)}, cos {list(cos.shape)}, sin {list(sin.shape)}"
        )
    dtypes = [as_dtype(value.dtype) for value in (x, cos, sin)]
    products = [promote(dtypes[0], dtype) for dtype in dtypes[1:]]
    promotes = products[0] and products[1] and promote(products[0], products[1])
    if not promotes or not all(dtype.is_floating for dtype in dtypes):
        raise OpError(
            f"apply_rope: expected floating x, cos and sin whose dtypes promote; found x {dtypes[0]}, cos {dtypes[1]}, "
            f"sin {dtypes[2]}: cast them"
        )


def _rotated(ctx: ExecutionContext, x: Tensor, cos: Tensor, sin: Tensor, mode: RopeMode) -> Tensor:
    if not ctx.isRecording and all(isinstance(value, EagerTensor | np.ndarray) for value in (x, cos, sin)):
        data = _rotate_views(_data(x), _data(cos), _data(sin), mode)
        return EagerTensor(TensorSpec(data.shape, as_dtype(data.dtype)), data)
    return _rotate_by_ops(ctx, x, cos, sin, mode)


def rope(
    ctx: ExecutionContext,
    x: Tensor,
    config: RopeConfig,
    positions: Tensor | None = None,
    length: Tensor | int | None = None,
) -> Tensor:
    """Rotates x [.., T, H].

    Args:
        ctx: context that computes.
        x: [.., T, H].
        config: RoPE of the tables.
        positions: i32, broadcast to [.., T]; 0, 1, .., T-1 if None.
        length: as for ``rope_tables``; T if neither it nor positions are given.

    Returns:
        x's shape and dtype.

    Raises:
        OpError: x has another rank or a dtype that is not floating.
    """
    if len(x.shape) < 2:
        raise OpError(f"rope: expected x [.., T, H] of rank 2 or more; found x {list(x.shape)}")
    if positions is None:
        positions = ctx.ops.iota((x.shape[-2],))
        length = x.shape[-2] if length is None else length
    cos, sin = rope_tables(ctx, config, positions, length)
    return apply_rope(ctx, x, cos, sin, config.mode)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(shape[::-1], to[::-1], strict=False))


def _data(value: Tensor | Array) -> Array:
    return value.numpy() if isinstance(value, Tensor) else value


def _rotate_views(x: Array, cos: Array, sin: Array, mode: RopeMode) -> Array:
    """Rotates on views: each half of the result is written in place, nothing is gathered or concatenated."""
    rotated = cos.shape[-1]
    half = rotated // 2
    if mode is RopeMode.SPLIT_HALF:
        first, second = (..., slice(0, half)), (..., slice(half, rotated))
    else:
        first, second = (..., slice(0, rotated, 2)), (..., slice(1, rotated, 2))
    result = np.empty(x.shape, x.dtype)
    with np.errstate(all="ignore"):  # as of ops
        for mine, other in ((first, second), (second, first)):
            np.add(x[mine] * cos[mine], x[other] * sin[mine], out=result[mine], casting="same_kind")
    result[..., rotated:] = x[..., rotated:]
    return result


def _rotate_by_ops(ctx: ExecutionContext, x: Tensor, cos: Tensor, sin: Tensor, mode: RopeMode) -> Tensor:
    ops, rotated, size = ctx.ops, cos.shape[-1], x.shape[-1]
    turning = x if rotated == size else ops.slice_axis(x, -1, 0, rotated)
    # By reverse, as slices and concat would cost IREE two more dispatches, to copy the halves.
    split = mode is RopeMode.SPLIT_HALF
    pairs = ops.reshape(turning, (*x.shape[:-1], *((2, rotated // 2) if split else (rotated // 2, 2))))
    swapped = ops.reshape(ops.reverse(pairs, (-2 if split else -1,)), turning.shape)
    turned = ops.cast(ops.add(ops.mul(turning, cos), ops.mul(swapped, sin)), x.dtype)
    return turned if rotated == size else ops.concat([turned, ops.slice_axis(x, -1, rotated, size)], -1)
