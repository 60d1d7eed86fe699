"""Rules of the layers of this package. Families with layers of their own kind register theirs beside them.

Two matrices make a pair: the first is cut by columns, the second by rows, so the activations between them are cut, and
one all-reduce after the second makes them whole. Norms, routers, convolutions and projections into several parts side
by side are replicated: see docs/sharding.md.
"""

from collections.abc import Iterator

from transformer_core.layers._attention import Attention
from transformer_core.layers._cache import StateMixer
from transformer_core.layers._embedding import TokenEmbedding
from transformer_core.layers._feed_forward import FeedForward, SwiGLU
from transformer_core.layers._gated_delta_net import GatedDeltaNet
from transformer_core.layers._joint_block import JointStream
from transformer_core.layers._latent_attention import LatentAttention
from transformer_core.layers._linear import VocabularyLinear
from transformer_core.layers._moe import Experts
from transformer_core.layers._multi_head_attention import MultiHeadAttention
from transformer_core.sharding._cut import Cut, cuts_of
from transformer_core.sharding._forms import columns, rows, vocabulary

_HEADS, _KEY_VALUE, _FEATURES = "query heads", "key/value heads", "features"


@cuts_of(Attention)
def _attention(module: Attention) -> Iterator[Cut]:
    config = module.config
    yield from columns(module.q_proj, config.heads, _HEADS)  # with gates, a head's gate follows its query
    for projection in (module.k_proj, module.v_proj):
        yield from columns(projection, config.kv_heads, _KEY_VALUE, shared=True)
    yield from rows(module.o_proj, config.heads, _HEADS)


@cuts_of(MultiHeadAttention)
def _multi_head(module: MultiHeadAttention) -> Iterator[Cut]:
    for projection in (module.q_proj, module.k_proj, module.v_proj):
        yield from columns(projection, module.heads, "heads")
    yield from rows(module.o_proj, module.heads, "heads")


@cuts_of(LatentAttention)
def _latent(module: LatentAttention) -> Iterator[Cut]:
    """Leaves the compressed vectors, which all heads read, whole, and their cache."""
    for projection in (module.q_proj, module.q_b_proj, module.kv_b_proj):
        yield from columns(projection, module.config.heads, "heads")
    yield from rows(module.o_proj, module.config.heads, "heads")


@cuts_of(JointStream)
def _joint(module: JointStream) -> Iterator[Cut]:
    for projection in (module.q_proj, module.k_proj, module.v_proj):
        yield from columns(projection, module.heads, "heads")
    yield from rows(module.o_proj, module.heads, "heads")


@cuts_of(SwiGLU)
def _gated(module: SwiGLU) -> Iterator[Cut]:
    inner = module.down_proj.weight.spec.shape[1]
    for projection in (module.gate_proj, module.up_proj):
        yield from columns(projection, inner, _FEATURES)
    yield from rows(module.down_proj, inner, _FEATURES)


@cuts_of(FeedForward)
def _ungated(module: FeedForward) -> Iterator[Cut]:
    inner = module.down_proj.weight.spec.shape[1]
    yield from columns(module.up_proj, inner, _FEATURES)
    yield from rows(module.down_proj, inner, _FEATURES)


@cuts_of(Experts)
def _experts(module: Experts) -> Iterator[Cut]:
    experts, inner, _ = module.up_proj.spec.shape
    first = module.gate_proj, module.up_proj, module.gate_proj_bias, module.up_proj_bias
    for parameter in (*first, module.down_proj, module.down_proj_bias):
        if parameter is not None:
            yield Cut(parameter, "ep", 0, experts, "experts")
    for parameter in first:
        if parameter is not None:
            yield Cut(parameter, "tp", 1, inner, "features of an expert")
    yield Cut(module.down_proj, "tp", 2, inner, "features of an expert")


@cuts_of(GatedDeltaNet)
def _delta(module: GatedDeltaNet) -> Iterator[Cut]:
    """Cuts by key heads if one projection has q, k, v and z of head after head; the convolution's weight is whole.

    Each device takes its heads of that weight, which is in the checkpoint's order, without an exchange.
    """
    if not module.grouped:
        yield from _states(module)
        return
    for projection in (module.in_proj_qkvz, module.in_proj_ba):
        yield from columns(projection, module.key_heads, "key heads")
    for parameter in (module.dt_bias, module.A_log):
        yield Cut(parameter, "tp", 0, module.key_heads, "key heads")
    yield from rows(module.out_proj, module.key_heads, "key heads")


@cuts_of(StateMixer)
def _states(module: StateMixer) -> Iterator[Cut]:
    """Leaves mixers with a state whole.

    Their projections and convolutions have parts side by side (q, k, v; z, x, B, C, dt), which a cut in equal pieces
    would go through. Cut by heads behind these alone, the partitioner spreads that cut backwards to the parts, and a
    layer gets nine collective-permutes and an all-gather in place of nothing.
    """
    for _, parameter in module.named_parameters():
        yield Cut(parameter, "tp", 0, 1, "block of states", optional=True)


@cuts_of(TokenEmbedding)
def _tokens(module: TokenEmbedding) -> Iterator[Cut]:
    yield from vocabulary(module)


@cuts_of(VocabularyLinear)
def _head(module: VocabularyLinear) -> Iterator[Cut]:
    yield from vocabulary(module)
