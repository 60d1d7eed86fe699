"""Self-attention with shared key/value heads."""

from typing import Final

import numpy as np

from lang_core import DType, ExecutionContext, Module, OpError, Parameter, Tensor, as_dtype, bf16, f64
from transformer_core.layers._attention_config import Alibi, AttentionConfig, OutputGate
from transformer_core.layers._cache import CacheLayout, shared_layout
from transformer_core.layers._kv_cache import KVCache, cache_spec, kv_layout
from transformer_core.layers._linear import Linear
from transformer_core.layers._norm import RMSNorm
from transformer_core.layers._places import Places
from transformer_core.layers._query_key_norm import HeadNorm, head_norm
from transformer_core.layers._rope import apply_rope
from transformer_core.layers._rope_config import RopeKind
from transformer_core.layers._step import StepInputs, for_heads

# Far below every score, and above the bias with which ``ops.cached_attention`` leaves out a key.
_LEAST_BIAS: Final = -1e28
_PER_HEAD: Final = (OutputGate.HEAD_SIGMOID, OutputGate.HEAD_SOFTPLUS)


def grouped_attention(
    ctx: ExecutionContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Computes ``softmax(scale * q k^T + bias) v`` for query heads in groups (Ainslie et al. 2023, arXiv:2305.13245).

    Scores and softmax are f32 or wider; K and V are not repeated in memory.

    Args:
        ctx: context that computes.
        q: [B, K, G, T, H], G query heads for each of the K key/value heads.
        k: [B, K, S, H].
        v: [B, K, S, H].
        bias: added to the scores, broadcast to [B, K, G, T, S]; see ``mask_bias``.
        scale: 1 / sqrt(H) if None.
        softcap: c in ``c * tanh(score / c)``, applied after the scale and before the bias (Gemma 2, arXiv:2408.00118).

    Returns:
        [B, K, G, T, H] in v's dtype.
    """
    if softcap is not None:  # the composite's gradient knows no cap
        return _grouped_attention(ctx, q, k, v, bias, scale, softcap)

    def body(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None) -> Tensor:
        return _grouped_attention(ctx, q, k, v, bias, scale)

    return ctx.composite("grouped_attention", body, (q, k, v, bias), (scale,))


def fused_attention(
    ctx: ExecutionContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    *,
    skips: bool = False,
) -> Tensor:
    """Computes ``grouped_attention`` by ``ops.cached_attention``, which has kernels, without keeping scores in memory.

    The op does not support f64, a bias per head or dumps of scores: these cases are computed by ops. The op needs a key
    that is not hidden for each query. A token of padding may have none near it, so hidden keys get a bias that the op
    takes for a number: a query with all keys hidden spreads its weights evenly. With ``skips`` each query sees a key,
    and kernels skip hidden keys.
    """
    queries, keys = q.shape[3], k.shape[2]
    per_head = bias is not None and bias.shape[-4:-2] != (1, 1)
    if per_head or as_dtype(q.dtype) is f64 or not keys or ctx.shows("scores", detail=True):
        return grouped_attention(ctx, q, k, v, bias, scale)

    def body(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None) -> Tensor:
        ops = ctx.ops
        if bias is None:
            over = ops.broadcast(ops.constant(0.0, "f32"), (1, queries, keys))
        else:
            over = ops.cast(ops.reshape(bias, (-1, *bias.shape[-2:])), "f32")
            over = over if skips else ops.maximum(over, _LEAST_BIAS)
            over = ops.broadcast(over, (over.shape[0], queries, keys))
        return ops.cached_attention(q, k, v, over, q.shape[-1] ** -0.5 if scale is None else scale)

    return ctx.composite("grouped_attention", body, (q, k, v, bias), (scale,))


def _grouped_attention(
    ctx: ExecutionContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float | None,
    softcap: float | None = None,
) -> Tensor:
    ops = ctx.ops
    wide = as_dtype(q.dtype).accumulation
    scores = ops.dot_general(q, k, ((4,), (3,)), ((0, 1), (0, 1)), dtype=wide)  # [B, K, G, T, S]
    scores = ops.mul(scores, q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = soft_capped(ctx, scores, softcap)
    if bias is not None:
        scores = ops.add(scores, bias)
    weights = ops.cast(ops.softmax(ctx.tag(scores, "scores", detail=True)), v.dtype)
    return ops.dot_general(weights, v, ((4,), (2,)), ((0, 1), (0, 1)))


def position_biases(ctx: ExecutionContext, alibi: Alibi, step: StepInputs, keys: int, kv_heads: int) -> Tensor:
    """Returns ALiBi's biases of scores, f32 [1 or B, K, G, T or 1, S]; a key at index s has position s.

    A bias depends on the positions of its query and its key alone, so a token's bits do not depend on the call. Rounded
    biases grow with the key's position and are the same for each query, as they were trained.
    """
    ops, slopes = ctx.ops, np.array(alibi.slopes, np.float32)
    if alibi.rounded:
        positions = ops.cast(ops.iota((1, 1, 1, 1, keys), 4), "f32")
        slopes = slopes.astype(bf16.numpy).astype(np.float32)
    else:
        queries = for_heads(ctx, ops.reshape(step.positions, (*step.positions.shape, 1)), 5)
        positions = ops.cast(ops.sub(ops.iota((1, keys), 1), queries), "f32")
        if positions.ndim < 5:
            positions = ops.reshape(positions, (1, 1, 1, *positions.shape))
    biases = ops.mul(positions, ops.constant(slopes.reshape(1, kv_heads, -1, 1, 1)))
    return ops.cast(ops.cast(biases, bf16), "f32") if alibi.rounded else biases


def soft_capped(ctx: ExecutionContext, x: Tensor, cap: float) -> Tensor:
    """Computes ``cap * tanh(x / cap)``."""
    return ctx.ops.mul(ctx.ops.tanh(ctx.ops.div(x, cap)), cap)


def _with_entries(memory: KVCache) -> KVCache:
    """Returns a layer's memory as a cache: itself, or the keys and values that a flow's tap has taken."""
    return memory if isinstance(memory, KVCache) else KVCache(memory.key, memory.value)


class Attention(Module):
    """Causal self-attention: MHA (K = N), GQA or MQA (K = 1), under Hugging Face's names.

    Args:
        config: sizes and options.
        dtype: dtype of the parameters.
    """

    def __init__(self, config: AttentionConfig, *, dtype: DType | str = "f32") -> None:
        self.config = config
        size, heads, kv_heads = config.size, config.heads * config.head_size, config.kv_heads * config.head_size
        own = config.sharing.owner is None
        self.q_proj = Linear(size, heads * (2 if config.gated else 1), bias=config.qkv_bias, dtype=dtype)
        self.k_proj = Linear(size, kv_heads, bias=config.qkv_bias, dtype=dtype) if own else None
        own_values = own and not config.values_are_keys
        values = config.kv_heads * config.values
        self.v_proj = Linear(size, values, bias=config.qkv_bias, dtype=dtype) if own_values else None
        inner = config.heads * config.values
        self.o_proj = Linear(inner, size, bias=config.output_bias, dtype=dtype)
        gates = config.heads if config.gate in _PER_HEAD else inner
        self.g_proj = None if config.gate is None else Linear(size, gates, dtype=dtype)
        self.o_norm = None if config.output_norm is None else RMSNorm(heads, eps=config.output_norm, dtype=dtype)
        self.q_norm = head_norm(config.norm, config.heads, config.head_size, dtype)
        self.k_norm = head_norm(config.norm, config.kv_heads, config.head_size, dtype) if own else None
        self.sinks = Parameter((config.heads,), dtype) if config.sinks else None

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: StepInputs, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Attends over the tokens of x, or over the cache with their keys and values in it.

        Args:
            ctx: context that computes.
            x: [B, T, D].
            step: inputs that the layers share; with ``places`` if there is a cache.
            cache: cache of this layer, or None; the updated one of the owner if keys and values are another layer's.

        Returns:
            [B, T, D], and the updated cache.

        Raises:
            OpError: the module reads another layer's keys and values, and did not get them.
        """
        ops, config = ctx.ops, self.config
        batch, queries, _ = x.shape
        if self.k_proj is None:
            return self._reading(ctx, x, step, cache), cache
        q, k, gate = self.q_proj(ctx, x), self.k_proj(ctx, x), None
        v = k if self.v_proj is None else self.v_proj(ctx, x)
        if self._norms_whole:
            q, k = self._normed(ctx, q, k)
        if config.clip is not None:
            q, k, v = (ops.clamp(x, -config.clip, config.clip) for x in (q, k, v))
        q = ops.reshape(q, (batch, queries, config.kv_heads, config.group, -1))
        if config.gated:
            q, gate = ops.split(q, (config.head_size, config.head_size), 4)
        k = ops.reshape(k, (batch, queries, config.kv_heads, config.head_size))
        v = ops.reshape(v, (batch, queries, config.kv_heads, config.values))
        v = v if config.value_scale == 1.0 else ops.mul(v, config.value_scale)
        if self._norms_heads_first:
            q, k = self._normed(ctx, q, k)
        q = self._placed(ctx, ops.transpose(q, (0, 2, 3, 1, 4)), self.q_norm, step)  # [B, K, G, T, H]
        k = self._placed(ctx, ops.transpose(k, (0, 2, 1, 3)), self.k_norm, step)  # [B, K, T, H]
        q = self._grown(ctx, q, step)
        v = self.placed_values(ctx, self._normed_values(ctx, v))
        q, k, v = ctx.tag(q, "q"), ctx.tag(k, "k"), ctx.tag(v, "v")
        lies: Places | None = None
        if cache is not None and step.places:
            lies = step.places[config.window]
            cache = cache.updated(ctx, k, v, lies)
        elif config.sharing.lends:
            cache = KVCache(k, v)
        kept = KVCache(k, v) if cache is None or lies is None else _with_entries(cache)
        gate = self._gate(ctx, x) if self.g_proj is not None else None if gate is None else ops.logistic(gate)
        return self._attended(ctx, q, kept, gate, step, lies), cache

    def _gate(self, ctx: ExecutionContext, x: Tensor) -> Tensor | None:
        """Returns the gate of x [B, T, D]: [B, T, K, G, 1] or [B, T, K, G, H]; None without a projection."""
        if self.g_proj is None:
            return None
        ops, config = ctx.ops, self.config
        gate = self.g_proj(ctx, x)
        gate = ops.reshape(gate, (*x.shape[:2], config.kv_heads, config.group, -1))
        return ops.logistic(gate) if config.gate is OutputGate.HEAD_SIGMOID else ops.softplus(gate)

    @property
    def _norms_whole(self) -> bool:
        return self.config.norm is not None and self.config.norm.whole

    @property
    def _norms_heads_first(self) -> bool:
        norm = self.config.norm
        return norm is not None and not norm.whole and not norm.after_rope

    def _reading(self, ctx: ExecutionContext, x: Tensor, step: StepInputs, lent: KVCache | None) -> Tensor:
        """Attends from x [B, T, D] over the owner's keys and values: [B, T, D]."""
        config = self.config
        if lent is None:
            raise OpError(
                f"attention at {self.path!r} reads the keys and values of layer {config.sharing.owner}: pass its cache"
            )
        ops = ctx.ops
        q, gate = self.q_proj(ctx, x), None
        if self._norms_whole and self.q_norm is not None:
            q = self.q_norm(ctx, q)
        q = ops.reshape(q, (*x.shape[:2], config.kv_heads, config.group, -1))
        if config.gated:
            q, gate = ops.split(q, (config.head_size, config.head_size), 4)
        if self.q_norm is not None and self._norms_heads_first:
            q = self.q_norm(ctx, q)
        q = self._placed(ctx, ops.transpose(q, (0, 2, 3, 1, 4)), self.q_norm, step)
        q = ctx.tag(self._grown(ctx, q, step), "q")
        gate = self._gate(ctx, x) if gate is None else ops.logistic(gate)
        return self._attended(ctx, q, _with_entries(lent), gate, step, step.places.get(config.window))

    def _attended(
        self,
        ctx: ExecutionContext,
        q: Tensor,
        kept: KVCache,
        gate: Tensor | None,
        step: StepInputs,
        lies: Places | None,
    ) -> Tensor:
        """Attends with q [B, K, G, T, H] and gate [B, T, K, G, H or 1]: [B, T, D].

        ``kept`` has the keys and values of the step alone if ``lies`` is None, else is a cache with entries there.
        """
        ops, scores = ctx.ops, self.config.scores
        bias = step.biases[self.config.window]
        if step.key_places is not None:
            kept = KVCache(ops.take(kept.key, step.key_places, 2), ops.take(kept.value, step.key_places, 2))
        k, v = kept.key, kept.value
        fused = (
            (step.places or step.key_places is not None)
            and scores.softcap is None
            and scores.alibi is None
            and not ctx.shows("scores", detail=True)
        )
        if fused and bias is not None and q.dtype != f64:  # the op is of f32 at most
            scale = self.config.head_size**-0.5 if scores.scale is None else scores.scale
            over = ops.reshape(bias, (-1, *bias.shape[-2:]))
            rows = None if lies is None else lies.rows
            if kept.encoding is None:
                heads = ops.cached_attention(q, k, v, over, scale, rows)
            else:
                heads = ops.packed_cached_attention(q, k, v, over, scale, kept.encoding, rows)
        else:
            k, v = kept.seen(ctx, lies, q.dtype)
            over = None if bias is None else for_heads(ctx, bias, 5)
            if scores.alibi is not None:
                over = self._with_positions(ctx, scores.alibi, over, step, k.shape[2])
            heads = grouped_attention(ctx, q, k, v, over, scores.scale, scores.softcap)
        if self.sinks is not None:
            keys, _ = kept.seen(ctx, lies, q.dtype)
            share = self._beside_sinks(ctx, ctx.parameter(self.sinks), q, keys, bias)
            heads = ops.mul(heads, ops.cast(share, heads.dtype))
        heads = ops.transpose(heads, (0, 3, 1, 2, 4))  # [B, T, K, G, H]
        if gate is not None:
            heads = ops.mul(heads, gate)
        heads = self.merged(ctx, heads)
        return self.o_proj(ctx, heads if self.o_norm is None else self.o_norm(ctx, heads))

    def placed_values(self, ctx: ExecutionContext, v: Tensor) -> Tensor:
        """Returns values [B, T, K, H] as attention takes them: [B, K, T, H]."""
        return ctx.ops.transpose(v, (0, 2, 1, 3))

    def merged(self, ctx: ExecutionContext, heads: Tensor) -> Tensor:
        """Returns the results of heads [B, T, K, G, H] side by side: [B, T, N H]."""
        return ctx.ops.reshape(heads, (*heads.shape[:2], -1))

    def _with_positions(
        self, ctx: ExecutionContext, alibi: Alibi, bias: Tensor | None, step: StepInputs, keys: int
    ) -> Tensor:
        """Adds ALiBi's biases to the mask's [T, S] or [B, 1, 1, T, S]."""
        if step.key_places is not None:
            raise OpError(f"attention at {self.path!r}: ALiBi is not supported for several texts in one row")
        ops, config = ctx.ops, self.config
        biases = position_biases(ctx, alibi, step, keys, config.kv_heads)
        if alibi.rounded:
            biases = ops.mul(biases, config.head_size**-0.5 if config.scores.scale is None else config.scores.scale)
        return biases if bias is None else ops.add(biases, bias)

    def _beside_sinks(self, ctx: ExecutionContext, sinks: Tensor, q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """Computes the keys' share of a softmax in which sinks [N] take part: f32 or wider [B, K, G, T, 1].

        Attention itself is that without sinks: its result times this share is the same, and has the same kernels.
        """
        ops, config = ctx.ops, self.config
        wide = as_dtype(q.dtype).accumulation
        scores = ops.dot_general(q, k, ((4,), (3,)), ((0, 1), (0, 1)), dtype=wide)  # [B, K, G, T, S]
        scores = ops.mul(scores, config.head_size**-0.5 if config.scores.scale is None else config.scores.scale)
        if bias is not None:
            scores = ops.add(scores, for_heads(ctx, bias, 5))
        most = ops.max(scores, 4, keepdims=True)
        total = ops.add(most, ops.log(ops.sum(ops.exp(ops.sub(scores, most)), 4, keepdims=True)))
        of_heads = ops.reshape(ops.cast(sinks, wide), (1, config.kv_heads, config.group, 1, 1))
        return ops.logistic(ops.sub(total, of_heads))

    def _normed(self, ctx: ExecutionContext, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.q_norm is None or self.k_norm is None:
            return q, k
        return self.q_norm(ctx, q), self.k_norm(ctx, k)

    def _placed(self, ctx: ExecutionContext, x: Tensor, norm: HeadNorm | None, step: StepInputs) -> Tensor:
        """Rotates x [.., T, H], and norms it if norms come after RoPE."""
        x, kind = self._rotated(ctx, x, step), self.config.norm
        if kind is None or not kind.after_rope:
            return x
        return ctx.ops.rms_norm(x, None, kind.eps) if norm is None else norm(ctx, x)

    def _grown(self, ctx: ExecutionContext, q: Tensor, step: StepInputs) -> Tensor:
        """Multiplies q [.., T, H] by the factor of its position, if queries grow."""
        ops, growth = ctx.ops, self.config.scores.growth
        if growth is None:
            return q
        # A quotient of integers that f32 has is rounded up to an integer only if it is one.
        positions = ops.add(step.positions, growth.first) if growth.first else step.positions
        steps = ops.floor(ops.div(ops.cast(positions, "f32"), float(growth.length)))
        factor = ops.add(ops.mul(ops.log(ops.add(steps, 1.0)), growth.weight), 1.0)
        factor = for_heads(ctx, ops.reshape(factor, (*factor.shape, 1)), q.ndim)
        return ops.mul(q, ops.cast(factor, q.dtype))

    def _normed_values(self, ctx: ExecutionContext, v: Tensor) -> Tensor:
        norm = self.config.norm
        return ctx.ops.rms_norm(v, None, norm.eps) if norm is not None and norm.values else v

    def _rotated(self, ctx: ExecutionContext, x: Tensor, step: StepInputs) -> Tensor:
        """Rotates x [.., T, H] by the layer's RoPE.

        Raises:
            OpError: the step lacks a second RoPE.
        """
        rope = self.config.rope
        if rope.kind is RopeKind.NONE:
            return x
        cos, sin = (step.cos, step.sin) if rope.kind is RopeKind.MODEL else (step.local_cos, step.local_sin)
        if cos is None or sin is None:
            raise OpError(f"attention at {self.path!r}: the step has no local RoPE: pass local_rope to make_step")
        return apply_rope(ctx, x, for_heads(ctx, cos, x.ndim), for_heads(ctx, sin, x.ndim), rope.mode)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Returns the layout of keys and values [B, K, S, H]; without tensors if they are another layer's."""
        config = self.config
        if config.sharing.owner is not None:
            return shared_layout(config.sharing.owner)
        dtype, heads = self.q_proj.weight.spec.dtype, config.kv_heads
        key, value = (cache_spec(batch, heads, capacity, size, dtype) for size in (config.head_size, config.values))
        return kv_layout(key, value, config.window, packable=True)
