"""Every strategy: importing this fills the table."""

from tests.differential import (
    _attentions,
    _cached_attention,
    _composites,
    _control,
    _elementwise,
    _indexing,
    _moves,
    _packed,
    _packed_cache,
    _packed_experts,
    _products,
    _reduce,
)
from tests.differential._trial import STRATEGIES, Trial, drawn
from tests.differential._truth import Truth, difference, eagerly, truths

del (
    _attentions,
    _cached_attention,
    _composites,
    _control,
    _elementwise,
    _indexing,
    _moves,
    _packed,
    _packed_cache,
    _packed_experts,
    _products,
    _reduce,
)

__all__ = ["STRATEGIES", "Trial", "Truth", "difference", "drawn", "eagerly", "truths"]
