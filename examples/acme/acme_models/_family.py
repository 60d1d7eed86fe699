"""The family ``AcmeForCausalLM``: a Llama whose feed-forward results are clipped softly."""

from acme_models._softclip import softclip
from transformer_core import SwiGLU
from transformer_core.family import DecoderLayer, Family, llama_kind, register


class ClippedSwiGLU(SwiGLU):
    """``softclip(down(silu(gate(x)) * up(x)))``; parameters as of ``SwiGLU``."""

    LIMIT = 4.0

    def forward(self, ctx, x):
        """Maps x [.., D] to [.., D]."""
        return softclip(ctx, super().forward(ctx, x), self.LIMIT)


class AcmeLayer(DecoderLayer):
    """Layer of a Llama with the team's feed-forward."""

    def __init__(self, config, index, dtype):
        super().__init__(config, index, dtype)
        self.mlp = ClippedSwiGLU(config.hidden, config.intermediate, dtype=dtype)


def _read(fields):
    return llama_kind(fields, ACME.architecture)


ACME = Family("AcmeForCausalLM", "acme", _read, AcmeLayer)
register(ACME)
