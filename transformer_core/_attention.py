"""Self-attention with shared key/value heads."""

from lang_core import ConfigError, DType, ExecutionContext, Module, OpError, Tensor, f32
from transformer_core._cache import CacheLayout, shared_layout
from transformer_core._kv_cache import KVCache, cache_spec, kv_layout
from transformer_core._linear import Linear
from transformer_core._norm import RMSNorm
from transformer_core._rope import apply_rope
from transformer_core._rope_config import RopeKind, RopeMode
from transformer_core._step import Step, for_heads


def grouped_attention(
    ctx: ExecutionContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """``softmax(scale * q k^T + bias) v`` for query heads in groups (Ainslie et al. 2023, arXiv:2305.13245).

    Scores and softmax are f32 or wider; K and V are not repeated in memory.

    Args:
        ctx: where to compute.
        q: [B, K, G, T, H], G query heads for each of the K key/value heads.
        k: [B, K, S, H].
        v: [B, K, S, H].
        bias: added to the scores, broadcast to [B, K, G, T, S]; see ``mask_bias``.
        scale: 1 / sqrt(H) where None.
        softcap: c in ``c * tanh(score / c)``, applied after the scale and before the bias (Gemma 2, arXiv:2408.00118).

    Returns:
        [B, K, G, T, H] in v's dtype.
    """
    if softcap is not None:  # the composite's gradient knows no cap
        return _grouped_attention(ctx, q, k, v, bias, scale, softcap)

    def body(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None) -> Tensor:
        return _grouped_attention(ctx, q, k, v, bias, scale)

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
    wide = f32 if q.dtype.itemsize == 2 else q.dtype
    scores = ops.dot_general(q, k, ((4,), (3,)), ((0, 1), (0, 1)), dtype=wide)  # [B, K, G, T, S]
    scores = ops.mul(scores, q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = soft_capped(ctx, scores, softcap)
    if bias is not None:
        scores = ops.add(scores, bias)
    weights = ops.cast(ops.softmax(ctx.tag(scores, "scores", detail=True)), v.dtype)
    return ops.dot_general(weights, v, ((4,), (2,)), ((0, 1), (0, 1)))


def soft_capped(ctx: ExecutionContext, x: Tensor, cap: float) -> Tensor:
    """``cap * tanh(x / cap)``."""
    return ctx.ops.mul(ctx.ops.tanh(ctx.ops.div(x, cap)), cap)


class Attention(Module):
    """Causal self-attention: MHA (K = N), GQA or MQA (K = 1), under Hugging Face's names.

    Args:
        size: D.
        heads: N.
        kv_heads: K, a divisor of N.
        head_size: H.
        rope_mode: the layout of the rotated pairs.
        qkv_bias: whether the projections of queries, keys and values have biases.
        output_bias: whether the output projection has one.
        norm_eps: where given, each head of q and k goes through an RMSNorm with this eps before RoPE (Qwen3).
        zero_centred: whether 1 is added to the weights of these norms.
        norm_whole: whether they go over all heads at once (OLMo-2).
        gated: whether the query projection also gives a gate, per head after its query, and what a head has seen is
            multiplied by the gate's logistic (Qwen3-Next).
        rope: which of the step's RoPEs the layer has.
        window: how many keys a query sees, itself included; all where None.
        scale: of the scores; 1 / sqrt(H) where None.
        softcap: of the scores; see ``grouped_attention``.
        owner: the number of the layer whose keys and values it reads in place of its own: it has no projections of
            them, and ``forward`` is to be given that layer's cache.
        lends: whether other layers read its keys and values: ``forward`` then gives them back without a cache, too.
        dtype: of the parameters.

    Raises:
        ConfigError: K does not divide N.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        kv_heads: int,
        head_size: int,
        *,
        rope_mode: RopeMode = RopeMode.SPLIT_HALF,
        qkv_bias: bool = False,
        output_bias: bool = False,
        norm_eps: float | None = None,
        zero_centred: bool = False,
        norm_whole: bool = False,
        gated: bool = False,
        rope: RopeKind = RopeKind.MODEL,
        window: int | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        owner: int | None = None,
        lends: bool = False,
        dtype: DType | str = "f32",
    ) -> None:
        if heads % kv_heads:
            raise ConfigError(f"attention: {kv_heads} key/value heads do not divide {heads} query heads")
        self.kv_heads, self.group, self.head_size = kv_heads, heads // kv_heads, head_size
        self.rope_mode, self.rope, self.window, self.scale, self.softcap = rope_mode, rope, window, scale, softcap
        self.gated, self.norm_whole, self.owner, self.lends = gated, norm_whole, owner, lends
        self.q_proj = Linear(size, heads * head_size * (2 if gated else 1), bias=qkv_bias, dtype=dtype)
        self.k_proj, self.v_proj = (
            Linear(size, kv_heads * head_size, bias=qkv_bias, dtype=dtype) if owner is None else None for _ in range(2)
        )
        self.o_proj = Linear(heads * head_size, size, bias=output_bias, dtype=dtype)
        normed = [each * head_size for each in (heads, kv_heads)] if norm_whole else [head_size] * 2
        self.q_norm, self.k_norm = (
            None if norm_eps is None else RMSNorm(each, eps=norm_eps, zero_centred=zero_centred, dtype=dtype)
            for each in normed
        )
        if owner is not None:
            self.k_norm = None

    def forward(
        self, ctx: ExecutionContext, x: Tensor, step: Step, cache: KVCache | None = None
    ) -> tuple[Tensor, KVCache | None]:
        """Attends over the tokens of x, or over the cache once their keys and values are in it.

        Args:
            ctx: where to compute.
            x: [B, T, D].
            step: what the layers share; with ``places`` where there is a cache.
            cache: of this layer, or None; that of the owner, updated, where there is one.

        Returns:
            [B, T, D], and the updated cache.

        Raises:
            OpError: it reads another layer's keys and values, and is not given them.
        """
        ops = ctx.ops
        batch, queries, _ = x.shape
        if self.k_proj is None or self.v_proj is None:
            return self._reading(ctx, x, step, cache), cache
        q, k, gate = self.q_proj(ctx, x), self.k_proj(ctx, x), None
        if self.norm_whole:
            q, k = self._normed(ctx, q, k)
        q = ops.reshape(q, (batch, queries, self.kv_heads, self.group, -1))
        if self.gated:
            q, gate = ops.split(q, (self.head_size, self.head_size), 4)
        k = ops.reshape(k, (batch, queries, self.kv_heads, self.head_size))
        v = ops.reshape(self.v_proj(ctx, x), (batch, queries, self.kv_heads, self.head_size))
        if not self.norm_whole:
            q, k = self._normed(ctx, q, k)
        q = self._rotated(ctx, ops.transpose(q, (0, 2, 3, 1, 4)), step)  # [B, K, G, T, H]
        k = self._rotated(ctx, ops.transpose(k, (0, 2, 1, 3)), step)  # [B, K, T, H]
        v = ops.transpose(v, (0, 2, 1, 3))
        q, k, v = ctx.tag(q, "q"), ctx.tag(k, "k"), ctx.tag(v, "v")
        if cache is not None and step.places:
            cache = cache.updated(ctx, k, v, step.places[self.window])
            k, v = cache.key, cache.value
        elif self.lends:
            cache = KVCache(k, v)
        return self._attended(ctx, q, k, v, gate, step), cache

    def _reading(self, ctx: ExecutionContext, x: Tensor, step: Step, seen: KVCache | None) -> Tensor:
        """x [B, T, D] over the owner's keys and values: [B, T, D]."""
        if seen is None:
            raise OpError(f"attention at {self.path!r} reads the keys and values of layer {self.owner}: pass its cache")
        ops = ctx.ops
        q, gate = self.q_proj(ctx, x), None
        if self.norm_whole and self.q_norm is not None:
            q = self.q_norm(ctx, q)
        q = ops.reshape(q, (*x.shape[:2], self.kv_heads, self.group, -1))
        if self.gated:
            q, gate = ops.split(q, (self.head_size, self.head_size), 4)
        if self.q_norm is not None and not self.norm_whole:
            q = self.q_norm(ctx, q)
        q = ctx.tag(self._rotated(ctx, ops.transpose(q, (0, 2, 3, 1, 4)), step), "q")
        return self._attended(ctx, q, seen.key, seen.value, gate, step)

    def _attended(
        self, ctx: ExecutionContext, q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None, step: Step
    ) -> Tensor:
        """q [B, K, G, T, H], k and v [B, K, S, H], gate [B, T, K, G, H]: [B, T, D]."""
        ops = ctx.ops
        bias = step.biases[self.window]
        if step.places and self.softcap is None and bias is not None and not ctx.shows("scores", detail=True):
            scale = self.head_size**-0.5 if self.scale is None else self.scale
            over = ops.reshape(bias, (-1, *bias.shape[-2:]))
            heads = ops.cached_attention(q, k, v, over, scale)
        else:
            over = None if bias is None else for_heads(ctx, bias, 5)
            heads = grouped_attention(ctx, q, k, v, over, self.scale, self.softcap)
        heads = ops.transpose(heads, (0, 3, 1, 2, 4))  # [B, T, K, G, H]
        if gate is not None:
            heads = ops.mul(heads, ops.logistic(gate))
        return self.o_proj(ctx, ops.reshape(heads, (*heads.shape[:2], -1)))

    def _normed(self, ctx: ExecutionContext, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.q_norm is None or self.k_norm is None:
            return q, k
        return self.q_norm(ctx, q), self.k_norm(ctx, k)

    def _rotated(self, ctx: ExecutionContext, x: Tensor, step: Step) -> Tensor:
        """x [.., T, H] by the layer's RoPE.

        Raises:
            OpError: the step has no second RoPE.
        """
        if self.rope is RopeKind.NONE:
            return x
        cos, sin = (step.cos, step.sin) if self.rope is RopeKind.MODEL else (step.local_cos, step.local_sin)
        if cos is None or sin is None:
            raise OpError(f"attention at {self.path!r}: the step has no local RoPE: pass local_rope to make_step")
        return apply_rope(ctx, x, for_heads(ctx, cos, x.ndim), for_heads(ctx, sin, x.ndim), self.rope_mode)

    def cache_layout(self, batch: int, capacity: int) -> CacheLayout:
        """Keys and values [B, K, S, H]; nothing where they are another layer's."""
        if self.owner is not None:
            return shared_layout(self.owner)
        spec = cache_spec(batch, self.kv_heads, capacity, self.head_size, self.q_proj.weight.spec.dtype)
        return kv_layout(spec, spec, self.window)
