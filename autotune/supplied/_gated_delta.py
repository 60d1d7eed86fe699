"""The gated delta rule: token by token, or in chunks."""

from dataclasses import dataclass
from typing import Any

from autotune import Invocation, Kernel
from lang_core import ExecutionContext, Tensor


@dataclass(frozen=True)
class GatedDeltaConfig:
    """Configuration of the gated delta rule.

    Attributes:
        chunk: number of tokens computed together; 1 is the recurrence.
    """

    chunk: int = 32


class GatedDeltaKernel(Kernel[GatedDeltaConfig, tuple[Tensor, Tensor]]):
    """The op ``ctx.ops.gated_delta_rule``.

    Arguments of a call: q [B, T, N, Hk], k [B, T, K, Hk], v [B, T, K, Hv], and g, beta, state or None.
    """

    op_id = "gated_delta_rule"
    # Chunks add in another order than the recurrence, and the state accumulates the difference.
    tolerance = 1e-3

    def run(
        self,
        q: Any,
        k: Any,
        v: Any,
        g: Any = None,
        beta: Any = None,
        state: Any = None,
        *,
        cfg: GatedDeltaConfig,
        ctx: ExecutionContext,
        scale: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns o [B, T, N, Hv] and the new state."""
        return ctx.ops.gated_delta_rule(q, k, v, g, beta, state, scale, chunk_size=cfg.chunk)

    def heuristic_cfg(self, inv: Invocation[Any, Any]) -> GatedDeltaConfig:
        """Returns 32 tokens; 16 with a gate per channel, because then decays are a matrix per channel."""
        g = inv.args[3] if len(inv.args) > 3 else None
        return GatedDeltaConfig(16 if g is not None and len(g.shape) == 4 else 32)

    def candidate_cfgs(self, inv: Invocation[Any, Any]) -> list[GatedDeltaConfig]:
        """Returns the recurrence, and chunks up to the sequence length rounded up."""
        tokens = inv.args[0].shape[1]
        return [GatedDeltaConfig(size) for size in (1, 4, 8, 16, 32, 64, 128) if size == 1 or size < 2 * tokens]
