"""Linear attention with a state: the gated delta rule and its variants."""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lang_core._dtypes import as_dtype, f32, f64
from lang_core._errors import OpError
from lang_core._tensor import Tensor
from lang_core.ops._composite import CompositeOps
from lang_core.ops._control import ControlOps
from lang_core.ops._indexing import IndexingOps

# Tokens that are computed together. A gate per channel needs [C, C, Hk] decays for each head.
_CHUNK: Final = 32
_CHUNK_PER_CHANNEL: Final = 16
# Axes of sequences and heads in a product of two tensors.
_HEADS: Final = ((0, 1), (0, 1))
# e to this power is 0 in every dtype, and it is finite: a gate of -inf times a zero would be NaN.
_CLOSED: Final = -1e4


class _Sizes(NamedTuple):
    """Sizes of the axes B, T, N, K, G = N / K, Hk, Hv."""

    batch: int
    tokens: int
    heads: int
    shared: int
    group: int
    key: int
    value: int


class _Chunk(NamedTuple):
    """Effect of a chunk of C tokens on a state. Only the delta rule has ``forget``.

    Sequences and heads are axes of their own: a mesh cuts one by ``dp`` and the other by ``tp``, and as one axis of
    B K neither could be cut without the other.

    Attributes:
        query: [B, K, C, G, Hk], with the decay since the chunk's start.
        scores: [B, K, C, G, C], of the chunk's own tokens.
        write: [B, K, C, Hv], values written if the state was 0.
        key: [B, K, C, Hk], with the decay to the chunk's end.
        decay: [B, K, 1 or Hk, 1], over the whole chunk.
        forget: [B, K, C, Hk], by which the state changes the written values.
    """

    query: Tensor
    scores: Tensor
    write: Tensor
    key: Tensor
    decay: Tensor
    forget: Tensor | None = None


class GatedDeltaOps(CompositeOps, IndexingOps, ControlOps):
    """The gated delta rule, written with the ops of the table."""

    __slots__ = ()

    def gated_delta_rule(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None = None,
        beta: Tensor | None = None,
        state: Tensor | None = None,
        scale: float | None = None,
        chunk_size: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes linear attention with a state S that decays by g and is corrected by beta (arXiv:2412.06464).

        For each token: ``S = exp(g) S``, ``u = beta (v - k^T S)``, ``S = S + k u^T``, ``o = scale q^T S``. Without g
        nothing is forgotten; without beta, ``u = v``. With both it is the gated delta rule, with beta the delta rule,
        with g gated linear attention, with neither linear attention. Query head n reads the state of head n // (N / K).

        Tokens are computed in chunks (arXiv:2406.06484), in a loop, so the graph does not grow with T; one token is
        computed as above. All powers of e are at most 1 for g <= 0. Inside all is f32, or f64 if q is.

        Args:
            q: [B, T, N, Hk]; q and k usually are ``l2_norm``ed.
            k: [B, T, K, Hk], K a divisor of N.
            v: [B, T, K, Hv].
            g: logarithm of the decay, [B, T, K], or [B, T, K, Hk] for each channel of the keys.
            beta: [B, T, K].
            state: [B, K, Hk, Hv]; zeros if None. It is not changed.
            scale: of o; 1 / sqrt(Hk) if None.
            chunk_size: how many tokens are computed together; 32, or 16 with a gate per channel, if None.

        Returns:
            o [B, T, N, Hv] in q's dtype, and the new state in state's dtype (that of the computation if None).
        """
        tokens = _sizes_of(q, k, v, g, beta, state).tokens
        if chunk_size is None:
            chunk_size = _CHUNK if g is None or g.ndim == 3 else _CHUNK_PER_CHANNEL
        if chunk_size < 1:
            raise OpError(f"gated_delta_rule: chunk_size must be 1 or more, found {chunk_size}")
        if tokens <= chunk_size:
            return self._gated_delta_rule(q, k, v, g, beta, state, scale, tokens)
        operands = (q, k, v, g, beta, state)
        return self._ctx.composite("gated_delta_rule", self._gated_delta_rule, operands, (scale, chunk_size))

    def _gated_delta_rule(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        g: Tensor | None,
        beta: Tensor | None,
        state: Tensor | None,
        scale: float | None,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        sizes = _sizes_of(q, k, v, g, beta, state)
        wide = f64 if as_dtype(q.dtype) is f64 else f32
        if g is None:
            g = self.zeros((sizes.batch, sizes.tokens, sizes.shared), wide)
        scaled = self.mul(self.cast(q, wide), sizes.key**-0.5 if scale is None else scale)
        grouped = self.reshape(scaled, (*q.shape[:2], sizes.shared, sizes.group, sizes.key))
        inputs = [grouped, *(self.cast(x, wide) for x in (k, v, g)), *([] if beta is None else [self.cast(beta, wide)])]
        heads = (sizes.batch, sizes.shared)
        start = self.zeros((*heads, sizes.key, sizes.value), wide) if state is None else self.cast(state, wide)
        if sizes.tokens == 1:
            o, last = self._one_token(start, *[self.reshape(x, (*heads, *x.shape[3:])) for x in inputs])
        else:
            o, last = self._chunks(start, [self._in_chunks(x, size) for x in inputs], ahead=g.ndim == 3)
            o = self.reshape(self.transpose(o, (1, 0, 3, 2, 4, 5)), (sizes.batch, -1, sizes.heads, sizes.value))
            o = self.slice_axis(o, 1, 0, sizes.tokens)
        o = self.reshape(o, (sizes.batch, sizes.tokens, sizes.heads, sizes.value))
        return self.cast(o, q.dtype), last if state is None else self.cast(last, state.dtype)

    def _one_token(
        self, state: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """One token: q [B, K, G, Hk], k [B, K, Hk], v [B, K, Hv], g [B, K, ..], beta [B, K], state [B, K, Hk, Hv].

        The decay goes to k and q, so that the state is read as it lies: ``q^T S' = (e^g q)^T S + (q^T k) u``.
        """
        decay = self.exp(g if g.ndim == 3 else self._wider(g))  # [B, K, 1 or Hk]
        if beta is not None:
            known = self._product(self.mul(k, decay), state)
            v = self.mul(self._wider(beta), self.sub(v, known))
        seen = self._product(self.mul(q, self._wider(decay, 2)), state)
        own = self.sum(self.mul(q, self._wider(k, 2)), -1, keepdims=True)
        o = self.add(seen, self.mul(own, self._wider(v, 2)))
        return o, self.add(self.mul(self._wider(decay), state), self.mul(self._wider(k), self._wider(v, 2)))

    def _wider(self, x: Tensor, axis: int = -1) -> Tensor:
        """Returns x with a new axis of 1 at ``axis``."""
        axis += x.ndim + 1 if axis < 0 else 0
        return self.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))

    def _without(self, x: Tensor, axis: int) -> Tensor:
        """Returns x without ``axis``, which is 1."""
        return self.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))

    def _product(self, x: Tensor, y: Tensor) -> Tensor:
        """Returns [B, K, .., m] times [B, K, m, n]: [B, K, .., n]."""
        return self.dot_general(x, y, ((x.ndim - 1,), (2,)), _HEADS)

    def _in_chunks(self, x: Tensor, size: int) -> Tensor:
        """Cuts [B, T, K, ..] into [T / C, B, K, C, ..]. Zeros pad the last chunk: they write and forget nothing."""
        batch, tokens, shared, *rest = x.shape
        count = math.ceil(tokens / size)
        if count * size > tokens:
            x = self.pad(x, (0,) * x.ndim, (0, count * size - tokens, *[0] * (x.ndim - 2)))
        x = self.reshape(x, (batch, count, size, shared, *rest))
        return self.transpose(x, (1, 0, 3, 2, *range(4, x.ndim)))

    def _chunks(self, state: Tensor, inputs: Sequence[Tensor], ahead: bool) -> tuple[Tensor, Tensor]:
        """Runs the chunks one after the other.

        Args:
            state: [B, K, Hk, Hv], before the first one.
            inputs: q [T / C, B, K, C, G, Hk], k, v, g, beta, from ``_in_chunks``.
            ahead: whether values that do not depend on the state are computed for all chunks before the loop.

        Returns:
            o [T / C, B, K, C, G, Hv], and the state after the last one.
        """
        count, batch, heads, size, group, _ = inputs[0].shape
        of_chunk: Callable[..., _Chunk] = self._chunk
        if count == 1:
            o, state = self._advance(of_chunk(*[self._without(x, 0) for x in inputs]), state)
            return self._wider(o, 0), state
        if ahead:
            every = self._chunk(*[self.reshape(x, (count * batch, *x.shape[2:])) for x in inputs])
            inputs = [self.reshape(x, (count, batch, *x.shape[1:])) for x in every if x is not None]
            of_chunk = _Chunk

        def body(i: Tensor, before: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
            parts = [self.dynamic_slice(x, (i, *[0] * (x.ndim - 1)), (1, *x.shape[1:])) for x in inputs]
            o, after = self._advance(of_chunk(*[self._without(x, 0) for x in parts]), before)
            return after, self.dynamic_update_slice(outputs, self._wider(o, 0), (i, 0, 0, 0, 0, 0))

        outputs = self.zeros((count, batch, heads, size, group, state.shape[3]), state.dtype)
        state, outputs = self.fori_loop(count, body, (state, outputs))
        return outputs, state

    def _chunk(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor | None = None) -> _Chunk:
        """Returns the effect of q [B, K, C, G, Hk], k [B, K, C, Hk], v [B, K, C, Hv], g [B, K, C, ..], beta [B, K, C].

        With D[a, b] the decay from token b to a, ``L = beta_a (k_a . k_b) D`` below the diagonal and H the state at the
        start, the chunk writes ``U = (I + L)^-1 beta (v - k D_start H)``.
        """
        *heads, size, group, _ = q.shape
        row, column = self.iota((size, size), 0), self.iota((size, size), 1)
        since, between = self._decays(g, row, column)
        to_end = self.slice_axis(between, 2, size - 1, size)
        read, whole = self.mul(q, self._wider(since, 3)), self.slice_axis(since, 2, size - 1, size)
        ended, whole = self.mul(k, self._without(to_end, 2)), self.reshape(whole, (*heads, -1, 1))
        if beta is None:
            return _Chunk(read, self._scores(q, k, between), v, ended, whole)
        rate = self._wider(beta)
        scores = self._scores(self.concat((q, self._wider(k, 3)), 3), k, between)  # of the queries, then of the keys
        alike = self.mul(self._without(self.slice_axis(scores, 3, group, group + 1), 3), rate)
        inverse = self._inverse(self.select(self.greater(row, column), alike, 0.0), row, column)
        known = self.mul(k, since)
        write, forget = (self._product(inverse, self.mul(rate, x)) for x in (v, known))
        return _Chunk(read, self.slice_axis(scores, 3, 0, group), write, ended, whole, forget)

    def _scores(self, x: Tensor, k: Tensor, between: Tensor) -> Tensor:
        """Returns [B, K, C, G, C]: x_a . k_b times the decay from b to a, for x [B, K, C, G, Hk], k [B, K, C, Hk]."""
        if between.shape[-1] == 1:
            products = self.dot_general(x, k, ((4,), (3,)), _HEADS)
            return self.mul(products, self._wider(self._without(between, 4), 3))
        return self.dot_general(x, self.mul(between, self._wider(k, 2)), ((4,), (4,)), ((0, 1, 2), (0, 1, 2)))

    def _decays(self, g: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """Returns decays from the start [B, K, C, 1 or Hk], and from token b to a >= b [B, K, C, C, 1 or Hk], else 0.

        Each exponent is a sum of its own gates: a difference of two running sums would lose the small ones beside a
        large one. g: [B, K, C] or [B, K, C, Hk].
        """
        g = self.maximum(g if g.ndim == 4 else self._wider(g), _CLOSED)
        *heads, size, channels = g.shape
        after = self.reshape(self.greater(row, column), (size, size, 1))
        gates = self.reshape(self.select(after, self._wider(g, 3), 0.0), (*heads, size, size * channels))
        up_to = self.broadcast(self.cast(self.greater_equal(row, column), g.dtype), (*heads, size, size))
        sums = self.reshape(self._product(up_to, gates), (*heads, size, size, channels))
        first = self._without(self.slice_axis(sums, 3, 0, 1), 3)  # of all gates but the first
        since = self.exp(self.add(first, self.slice_axis(g, 2, 0, 1)))
        seen = self.reshape(self.greater_equal(row, column), (size, size, 1))
        return since, self.select(seen, self.exp(sums), 0.0)

    def _inverse(self, below: Tensor, row: Tensor, column: Tensor) -> Tensor:
        """Returns ``(I + L)^-1`` for L [B, K, C, C] below the diagonal, by halves, all blocks of one size at once.

        The inverse of [[A, 0], [B, D]] has ``-D^-1 B A^-1`` in place of B; blocks of 1, 2, 4, .. are joined. (The
        product of ``I + (-L)^(2^i)`` takes as many steps, but its powers cancel: with similar keys all digits of f32
        are lost.)
        """
        size = below.shape[2]
        apart = self.bitwise_xor(row, column)  # from 2^i to 2^(i + 1) - 1 in the blocks that step i joins
        inverse = self.select(self.equal(row, column), 1.0, self.negate(self.select(self.equal(apart, 1), below, 0.0)))
        for level in range(1, (size - 1).bit_length()):
            joins = self.equal(self.shift_right_logical(apart, level), 1)
            left = self._product(inverse, self.select(joins, below, 0.0))
            inverse = self.sub(inverse, self._product(left, inverse))
        return inverse

    def _advance(self, chunk: _Chunk, state: Tensor) -> tuple[Tensor, Tensor]:
        """Returns o [B, K, C, G, Hv] of a chunk, and the state [B, K, Hk, Hv] after it."""
        write = chunk.write
        if chunk.forget is not None:
            write = self.sub(write, self._product(chunk.forget, state))
        o = self.add(self._product(chunk.query, state), self._product(chunk.scores, write))
        added = self.dot_general(chunk.key, write, ((2,), (2,)), _HEADS)
        return o, self.add(self.mul(chunk.decay, state), added)


def _sizes_of(q: Tensor, k: Tensor, v: Tensor, g: Tensor | None, beta: Tensor | None, state: Tensor | None) -> _Sizes:
    """Checks that the operands' shapes fit each other, and returns their sizes."""
    given = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "state": state}
    shapes_of = {name: x.shape for name, x in given.items() if x is not None}
    if q.ndim == k.ndim == v.ndim == 4 and k.shape[2] and q.shape[1]:
        batch, tokens, heads, key = q.shape
        shared, value = v.shape[2:]
        per_head = (batch, tokens, shared)
        wanted = {
            "k": ((*per_head, key),),
            "v": ((*per_head, value),),
            "g": (per_head, (*per_head, key)),
            "beta": (per_head,),
            "state": ((batch, shared, key, value),),
        }
        if heads % k.shape[2] == 0 and all(shapes_of[name] in wanted[name] for name in shapes_of if name in wanted):
            return _Sizes(batch, tokens, heads, shared, heads // shared, key, value)
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in shapes_of.items())
    raise OpError(
        f"gated_delta_rule of {shapes}: wanted q [B,T,N,Hk], k [B,T,K,Hk], v [B,T,K,Hv], g [B,T,K] or [B,T,K,Hk], "
        f"beta [B,T,K], state [B,K,Hk,Hv], T not 0, K a divisor of N"
    )
