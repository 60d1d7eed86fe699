"""Composites: ops that are written in terms of the table's ops, once, for every context."""

import math
from typing import Final

from lang_core._dtypes import as_dtype
from lang_core._errors import OpError
from lang_core._tensor import Tensor
from lang_core.ops._contract import ContractionOps
from lang_core.ops._elementwise import MathOps
from lang_core.ops._op import positive_axis
from lang_core.ops._reduce import ReductionOps
from lang_core.ops._shape import CreationOps, ShapeOps

# Far below every score, and finite: a fully masked row must not become inf - inf.
_MASKED: Final = -1e30


def _stretches(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Returns whether a shape broadcasts to another, which stays as it is."""
    pairs = zip(shape[::-1], to[::-1], strict=False)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in pairs)


class CompositeOps(ContractionOps, MathOps, ReductionOps, ShapeOps, CreationOps):
    """Activations, norms and attention. f16 and bf16 are computed in f32 and rounded once."""

    __slots__ = ()

    def _wide(self, x: Tensor) -> Tensor:
        """Returns x in the dtype in which it is computed."""
        return self.cast(x, as_dtype(x.dtype).accumulation)

    def mean(self, x: Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Tensor:
        """Returns the mean over ``axis`` (all axes if None), in x's floating dtype; NaN without elements."""
        if not as_dtype(x.dtype).is_floating:
            raise OpError(f"mean of {x.dtype}{list(x.shape)}: the dtype must be floating: cast it first")
        total = self.sum(self._wide(x), axis, keepdims)
        count = math.prod(x.shape) / max(math.prod(total.shape), 1)
        return self.cast(self.div(total, count), x.dtype)

    def top_k(self, x: Tensor, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
        """Returns the k largest elements along ``axis``, largest first, and their i32 indices.

        Of equal elements the first comes first; NaN counts as the largest.
        """
        values, indices = self.sort(x, axis, descending=True)
        axis = positive_axis(axis, x.ndim)
        return self.slice_axis(values, axis, 0, k), self.slice_axis(indices, axis, 0, k)

    def relu(self, x: Tensor) -> Tensor:
        """Returns max(x, 0). Its derivative at 0 is 0, as in PyTorch and JAX."""
        return self._ctx.composite("relu", self._relu, (x,))

    def _relu(self, x: Tensor) -> Tensor:
        return self.maximum(x, 0)

    def silu(self, x: Tensor) -> Tensor:
        """Returns x * logistic(x) (Elfwing et al. 2017, arXiv:1702.03118)."""
        return self._ctx.composite("silu", self._silu, (x,))

    def _silu(self, x: Tensor) -> Tensor:
        wide = self._wide(x)
        return self.cast(self.mul(wide, self.logistic(wide)), x.dtype)

    def softplus(self, x: Tensor) -> Tensor:
        """Returns log(1 + exp(x)), without overflow."""
        return self._ctx.composite("softplus", self._softplus, (x,))

    def _softplus(self, x: Tensor) -> Tensor:
        wide = self._wide(x)
        above = self.log1p(self.exp(self.negate(self.abs(wide))))
        return self.cast(self.add(self.maximum(wide, 0), above), x.dtype)

    def gelu(self, x: Tensor) -> Tensor:
        """Returns x * Phi(x), Phi the normal distribution, exact (Hendrycks, Gimpel 2016, arXiv:1606.08415)."""
        return self._ctx.composite("gelu", self._gelu, (x,))

    def _gelu(self, x: Tensor) -> Tensor:
        wide = self._wide(x)
        phi = self.mul(self.add(self.erf(self.mul(wide, math.sqrt(0.5))), 1.0), 0.5)
        return self.cast(self.mul(wide, phi), x.dtype)

    def gelu_tanh(self, x: Tensor) -> Tensor:
        """Returns the tanh approximation of gelu, of the same paper."""
        return self._ctx.composite("gelu_tanh", self._gelu_tanh, (x,))

    def _gelu_tanh(self, x: Tensor) -> Tensor:
        wide = self._wide(x)
        cube = self.mul(self.mul(wide, wide), wide)
        inner = self.mul(self.add(wide, self.mul(cube, 0.044715)), math.sqrt(2 / math.pi))
        return self.cast(self.mul(self.mul(wide, self.add(self.tanh(inner), 1.0)), 0.5), x.dtype)

    def softmax(self, x: Tensor, axis: int = -1, where: Tensor | None = None) -> Tensor:
        """Returns exp(x) / sum(exp(x)) along ``axis``, in f32 or wider inside.

        Args:
            x: floating, any shape.
            axis: axis along which the result sums to one.
            where: bool, broadcast to x: elements that do not count and become 0. A slice of which none
                counts becomes 0 throughout.

        Returns:
            x's shape and dtype.
        """
        return self._ctx.composite("softmax", self._softmax, (x, where), (axis,))

    def _softmax(self, x: Tensor, where: Tensor | None, axis: int) -> Tensor:
        wide = self._wide(x)
        if where is not None:
            wide = self.select(where, wide, _MASKED)
            if wide.shape != x.shape:
                raise OpError(f"softmax of shape {x.shape}: where, of shape {where.shape}, does not broadcast to it")
        numerator = self.exp(self.sub(wide, self.max(wide, axis, keepdims=True)))
        if where is not None:
            numerator = self.select(where, numerator, 0.0)
        total = self.sum(numerator, axis, keepdims=True)
        if where is not None:
            total = self.maximum(total, 1e-30)  # the sum is 0 in a slice of which none counts, else >= 1
        return self.cast(self.div(numerator, total), x.dtype)

    def log_softmax(self, x: Tensor, axis: int = -1) -> Tensor:
        """Returns log(softmax(x)) along ``axis``, in f32 or wider inside; x's shape and dtype."""
        return self._ctx.composite("log_softmax", self._log_softmax, (x,), (axis,))

    def _log_softmax(self, x: Tensor, axis: int) -> Tensor:
        wide = self._wide(x)
        centred = self.sub(wide, self.max(wide, axis, keepdims=True))
        return self.cast(self.sub(centred, self.log(self.sum(self.exp(centred), axis, keepdims=True))), x.dtype)

    def rms_norm(self, x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
        """Returns weight * x / sqrt(mean(x^2) + eps) over the last axis (Zhang, Sennrich 2019, arXiv:1910.07467).

        Args:
            x: [.., D].
            weight: [D].
            eps: added to the mean of squares.

        Returns:
            [.., D] in x's dtype. As in Hugging Face's models, the normalised x is rounded to that dtype
            before it is multiplied by weight.
        """
        return self._ctx.composite("rms_norm", self._rms_norm, (x, weight), (eps,))

    def _rms_norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        wide = self._wide(x)
        scale = self.rsqrt(self.add(self.mean(self.mul(wide, wide), -1, keepdims=True), eps))
        normed = self.cast(self.mul(wide, scale), x.dtype)
        return normed if weight is None else self.mul(self.cast(weight, x.dtype), normed)

    def l2_norm(self, x: Tensor, eps: float = 1e-6) -> Tensor:
        """Returns x / sqrt(sum(x^2) + eps) over the last axis, in x's dtype."""
        wide = self._wide(x)
        scale = self.rsqrt(self.add(self.sum(self.mul(wide, wide), -1, keepdims=True), eps))
        return self.cast(self.mul(wide, scale), x.dtype)

    def layer_norm(
        self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Tensor:
        """Returns (x - mean) / sqrt(variance + eps) * weight + bias over the last axis (arXiv:1607.06450).

        x: [.., D], weight and bias: [D]; returns [.., D] in x's dtype.
        """
        return self._ctx.composite("layer_norm", self._layer_norm, (x, weight, bias), (eps,))

    def _layer_norm(self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        wide = self._wide(x)
        centred = self.sub(wide, self.mean(wide, -1, keepdims=True))
        scale = self.rsqrt(self.add(self.mean(self.mul(centred, centred), -1, keepdims=True), eps))
        normed = self.mul(centred, scale)
        if weight is not None:
            normed = self.mul(normed, self.cast(weight, wide.dtype))
        if bias is not None:
            normed = self.add(normed, self.cast(bias, wide.dtype))
        return self.cast(normed, x.dtype)

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Returns softmax(scale * q k^T + bias, where mask) v (Vaswani et al. 2017, arXiv:1706.03762).

        Query head n reads key/value head n // (N / K); K and V are not repeated in memory.

        Args:
            q: [B, N, T, H].
            k: [B, K, S, H], K a divisor of N.
            v: [B, K, S, H'] (H' may differ from H).
            mask: bool, broadcast to [B, N, T, S]; True where a query may look. A query that may look nowhere
                gives zeros.
            scale: of the scores; 1 / sqrt(H) if None.
            softcap: c in ``c * tanh(score / c)``, applied after scale, before bias and mask.
            bias: added to the scores, broadcast to [B, N, T, S]; where it is -inf a query may not look.

        Returns:
            [B, N, T, H'] in q's dtype.
        """
        batch, heads, queries, size = q.shape if q.ndim == 4 else (0, 0, 0, 0)
        shared = k.shape[1] if k.ndim == 4 else 0
        if not shared or heads % shared or v.shape[:-1] != k.shape[:-1] or k.shape[-1] != size or k.shape[0] != batch:
            raise OpError(
                f"attention of shapes {q.shape}, {k.shape}, {v.shape}: wanted q [B,N,T,H], k [B,K,S,H], "
                f"v [B,K,S,H'], K a divisor of N"
            )
        wanted = (batch, heads, queries, k.shape[2])
        mask, bias = self._over_scores("mask", mask, wanted), self._over_scores("bias", bias, wanted)
        return self._ctx.composite("attention", self._attention, (q, k, v, mask, bias), (scale, softcap))

    def _over_scores(self, name: str, x: Tensor | None, scores: tuple[int, ...]) -> Tensor | None:
        """Returns a mask or bias as [T, S] or [B, N, T, S], if axes may be 1."""
        if x is None or (x.ndim in (2, 4) and _stretches(x.shape, scores)):
            return x
        if not _stretches(x.shape, scores):
            raise OpError(f"attention: {name} has shape {x.shape}; wanted one that broadcasts to {scores}, [B,N,T,S]")
        return self.reshape(x, (*[1] * ((4 if x.ndim == 3 else 2) - x.ndim), *x.shape))

    def _attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        scale: float | None,
        softcap: float | None,
    ) -> Tensor:
        batch, heads, queries, size = q.shape
        shared, group = k.shape[1], heads // k.shape[1]
        grouped = self.reshape(q, (batch, shared, group, queries, size))
        scores = self.dot_general(grouped, k, ((4,), (3,)), ((0, 1), (0, 1)), dtype=as_dtype(q.dtype).accumulation)
        scores = self.mul(scores, max(size, 1) ** -0.5 if scale is None else scale)  # [B, K, G, T, S]
        if softcap is not None:
            scores = self.mul(self.tanh(self.div(scores, softcap)), softcap)
        mask = None if mask is None else self._per_group(mask, shared, group)
        if bias is not None:
            bias = self.cast(self._per_group(bias, shared, group), scores.dtype)
            seen = self.not_equal(bias, -math.inf)
            scores = self.add(scores, bias)
            mask = seen if mask is None else self.logical_and(mask, seen)
        weights = self.cast(self.softmax(scores, -1, where=mask), v.dtype)
        result = self.dot_general(weights, v, ((4,), (2,)), ((0, 1), (0, 1)))  # [B, K, G, T, H']
        return self.cast(self.reshape(result, (batch, heads, queries, v.shape[-1])), q.dtype)

    def _per_group(self, x: Tensor, shared: int, group: int) -> Tensor:
        """Returns [T, S] or [B, N, T, S] (axes may be 1) in a shape that broadcasts to [B, K, G, T, S]."""
        if x.ndim == 2:
            return x
        heads = (1, 1) if x.shape[1] == 1 else (shared, group)
        return self.reshape(x, (x.shape[0], *heads, *x.shape[2:]))
