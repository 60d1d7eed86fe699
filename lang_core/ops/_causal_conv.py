"""Causal convolution of each channel by itself, with a state."""

from lang_core._dtypes import as_dtype, f32, f64
from lang_core._errors import OpError
from lang_core._tensor import Tensor
from lang_core.ops._composite import CompositeOps
from lang_core.ops._indexing import IndexingOps


class CausalConvOps(CompositeOps, IndexingOps):
    """The short convolution before linear attention and state space models."""

    __slots__ = ()

    def causal_conv(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        state: Tensor | None = None,
        count: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes ``y_t = bias + sum_j weight[:, j] * x_(t - W + 1 + j)``: each channel by itself, over past tokens.

        Args:
            x: [B, T, C], floating.
            weight: [C, W], of W taps; the last one is for the token itself.
            bias: [C].
            state: [B, W - 1, C], the tokens before x; zeros if None. It is not changed.
            count: i32 of rank 0 or [B], how many of x's tokens count: the state goes on from there; T if None.

        Returns:
            y [B, T, C] and the new state [B, W - 1, C], both in x's dtype.
        """
        batch, tokens, channels = x.shape if x.ndim == 3 else (0, 0, 0)
        taps = weight.shape[1] if weight.ndim == 2 else 0
        past = (batch, taps - 1, channels)
        fits = taps > 0 and weight.shape[0] == channels and (bias is None or bias.shape == (channels,))
        if x.ndim != 3 or not fits or (state is not None and state.shape != past):
            shapes = ", ".join(str(operand.shape) for operand in (x, weight, bias, state) if operand is not None)
            raise OpError(
                f"causal_conv of shapes {shapes}: wanted x [B,T,C], weight [C,W], bias [C], state [B,W-1,C], W not 0"
            )
        before = self.zeros(past, x.dtype) if state is None else self.cast(state, x.dtype)
        whole = self.concat((before, x), 1)
        wide = f64 if as_dtype(x.dtype) is f64 else f32
        rows, taken = self.transpose(self.cast(weight, wide)), self.cast(whole, wide)
        y = self.zeros((), wide) if bias is None else self.cast(bias, wide)
        for tap in range(taps):
            shifted = self.slice_axis(taken, 1, tap, tap + tokens)
            y = self.add(y, self.mul(shifted, self.slice_axis(rows, 0, tap, tap + 1)))
        after = self.slice_axis(whole, 1, tokens, tokens + taps - 1)
        if count is not None and count.ndim:
            after = self._from_each(whole, count, past)
        elif count is not None:
            after = self.dynamic_slice(whole, (0, count, 0), past)
        return self.cast(y, x.dtype), after

    def _from_each(self, whole: Tensor, count: Tensor, past: tuple[int, int, int]) -> Tensor:
        """Returns [B, W - 1, C] of whole [B, T + W - 1, C], from row count [B] of each batch on."""
        batch, kept, channels = past
        rows = whole.shape[1]
        begins = self.add(self.clamp(count, 0, rows - kept), self.mul(self.iota((batch,)), rows))
        places = self.add(self.reshape(begins, (batch, 1)), self.iota((1, kept), 1))
        return self.take(self.reshape(whole, (batch * rows, channels)), places)
