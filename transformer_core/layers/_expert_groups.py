"""Loop over experts that devices divide among them: each holds a group of them, and computes these alone.

Besides the letters of mixtures of experts (M tokens, C experts of each, A = M C pairs), G is the number of groups,
L = E / G how many experts a group has, and R how many rows of an expert a round takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lang_core import ExecutionContext, Parameter, Tensor

Stacked = Sequence[tuple[Parameter, Tensor, Tensor | None]]
"""Projections: parameter, weights [E, O, I] and biases [E, O]."""


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Rounds of the loop: the first ones are of each group's first expert, and so on.

    Attributes:
        ends: i32 [L], number of the round behind the last one of each expert of a group.
        counts: i32 [L], number of its rounds.
        total: i32, number of rounds.
    """

    ends: Tensor
    counts: Tensor
    total: Tensor


def by_groups(
    ctx: ExecutionContext,
    x: Tensor,
    chosen: Tensor,
    stacked: Stacked,
    computed: Callable[[Tensor, Stacked], Tensor],
    *,
    groups: int,
    rows: int,
) -> Tensor:
    """Computes the pairs of token and expert, up to some rows of one expert of every group in each round.

    Nothing but the last sum goes over groups, so devices that divide the experts do not exchange weights: all take the
    same place among their own at a time. Experts that are not chosen by a token are not read, unless one of another
    group is.

    Args:
        ctx: context that computes.
        x: [M, D].
        chosen: i32 [M, C].
        stacked: projections.
        computed: computes rows [G, R, D] with one expert of each group, with projections [G, O, I]: [G, R, D].
        groups: G, a divisor of E.
        rows: R.

    Returns:
        Results [G, M, C, D]: of each pair in its expert's group, and 0 in the others.
    """
    ops, (tokens, count), experts = ctx.ops, chosen.shape, stacked[0][1].shape[0]
    pairs, per_group = tokens * count, experts // groups
    flat = ops.reshape(chosen, (pairs,))
    order = ops.sort(flat)[1]
    token = ops.take(ops.reshape(ops.iota((tokens, count), 0), (pairs,)), order)
    counts = ops.sum(ops.cast(ops.equal(flat, ops.iota((experts, 1), 0)), "i32"), 1)  # [E]
    rounds = _rounds(ctx, counts, groups, rows)
    firsts = _firsts(ctx, flat, groups, per_group)

    def one_round(number: Tensor, results: Tensor) -> Sequence[Tensor]:
        expert = ops.sum(ops.cast(ops.less_equal(rounds.ends, number), "i32"))
        begun = ops.sub(_at(ctx, rounds.ends, expert), _at(ctx, rounds.counts, expert))
        offset = ops.mul(ops.sub(number, begun), rows)
        first = ops.add(ops.dynamic_slice(firsts, (0, expert), (groups, 1)), offset)
        mine = ops.take(x, ops.take(token, ops.add(first, ops.iota((1, rows), 1))))  # [G, R, D]
        down = computed(mine, [_of_groups(ctx, part, expert, groups) for part in stacked])
        return ops.add(number, 1), ops.dynamic_update_slice(results, down, (0, ops.mul(number, rows), 0))

    most = pairs // rows + min(pairs, per_group)
    start = ops.constant(0, "i32"), ops.zeros((groups, most * rows, x.shape[1]), x.dtype)
    results = ops.while_loop(lambda number, _: ops.less(number, rounds.total), one_round, start, most)[1]
    within = ops.sub(ops.reshape(chosen, (1, tokens, count, 1)), ops.mul(ops.iota((groups, 1, 1, 1), 0), per_group))
    own = ops.equal(within, ops.clamp(within, 0, per_group - 1))
    return ops.select(own, ops.take(results, _places(ctx, chosen, order, counts, rounds, rows), 1), 0.0)


def _firsts(ctx: ExecutionContext, flat: Tensor, groups: int, per_group: int) -> Tensor:
    """Returns the places of each expert's first pair among the sorted ones, of experts i32 [A]: i32 [G, L].

    Devices that divide the groups compute their own; so it is not a sum of ``counts``, which all need whole.
    """
    ops = ctx.ops
    expert = ops.add(ops.mul(ops.iota((groups, per_group, 1), 0), per_group), ops.iota((groups, per_group, 1), 1))
    return ops.sum(ops.cast(ops.less(flat, expert), "i32"), 2)


def _rounds(ctx: ExecutionContext, counts: Tensor, groups: int, rows: int) -> _Rounds:
    """Returns the rounds of experts that have so many pairs, i32 [E]."""
    ops = ctx.ops
    most = ops.max(ops.reshape(counts, (groups, -1)), 0)  # [L], of the group that has most
    over = ops.rem(most, rows)
    full = ops.cast(ops.div(ops.cast(ops.sub(most, over), "f32"), float(rows)), "i32")  # without a remainder: exact
    needed = ops.add(full, ops.minimum(over, 1))
    return _Rounds(ops.cumsum(needed, 0), needed, ops.sum(needed))


def _places(ctx: ExecutionContext, chosen: Tensor, order: Tensor, counts: Tensor, rounds: _Rounds, rows: int) -> Tensor:
    """Returns the rows of the results at which the pairs are: i32 [M, C]."""
    ops, flat = ctx.ops, ctx.ops.reshape(chosen, (-1,))
    place = ops.scatter(ops.zeros(flat.shape, "i32"), order, ops.iota(flat.shape), 0)
    rank = ops.sub(place, ops.take(ops.sub(ops.cumsum(counts, 0), counts), flat))  # among those of its expert
    begun = ops.take(ops.mul(ops.sub(rounds.ends, rounds.counts), rows), ops.rem(flat, rounds.ends.shape[0]))
    return ops.reshape(ops.add(begun, rank), chosen.shape)


def _at(ctx: ExecutionContext, x: Tensor, place: Tensor) -> Tensor:
    """Returns the element of x [L] at a place."""
    return ctx.ops.reshape(ctx.ops.dynamic_slice(x, (place,), (1,)), ())


def _of_groups(
    ctx: ExecutionContext, part: tuple[Parameter, Tensor, Tensor | None], expert: Tensor, groups: int
) -> tuple[Parameter, Tensor, Tensor | None]:
    """Returns a projection's weights [G, O, I] and biases [G, O] of one expert of each group."""
    parameter, weight, bias = part
    return parameter, _sliced(ctx, weight, expert, groups), None if bias is None else _sliced(ctx, bias, expert, groups)


def _sliced(ctx: ExecutionContext, stacked: Tensor, expert: Tensor, groups: int) -> Tensor:
    """Returns [G, ..] of one expert of each group, of [E, ..]."""
    ops, (experts, *inner) = ctx.ops, stacked.shape
    grouped = ops.reshape(stacked, (groups, experts // groups, *inner))
    part = ops.dynamic_slice(grouped, (0, expert, *[0] * len(inner)), (groups, 1, *inner))
    return ops.reshape(part, (groups, *inner))
