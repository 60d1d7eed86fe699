"""Cuts of linear layers: by columns, by rows, by rows of a vocabulary."""

from collections.abc import Iterator

from lang_core import checked_choices
from transformer_core.layers._embedding import Embedding
from transformer_core.layers._linear import Linear
from transformer_core.sharding._cut import Cut


@checked_choices
def columns(linear: Linear | None, units: int, unit: str, *, shared: bool = False) -> Iterator[Cut]:
    """Yields the cuts of a layer with cut results: those of the rows of ``weight [out, in]``, and of the bias.

    Args:
        linear: the layer; None yields nothing.
        units: number of equal parts of the results that stay whole.
        unit: name of a part.
        shared: whether several devices may hold the same part.
    """
    if linear is None:
        return
    for parameter in (linear.weight, linear.bias):
        if parameter is not None:
            yield Cut(parameter, "tp", 0, units, unit, shared)


def rows(linear: Linear | None, units: int, unit: str) -> Iterator[Cut]:
    """Yields the cuts of a layer with cut inputs, and results that are sums over devices; the bias is whole.

    Packed rows are cut between blocks: if the axis does not divide the blocks, the weight is replicated.

    Args:
        linear: the layer; None yields nothing.
        units: number of equal parts of the inputs that stay whole.
        unit: name of a part.
    """
    if linear is not None:
        yield Cut(linear.weight, "tp", 1, units, unit)


def vocabulary(module: Linear | Embedding) -> Iterator[Cut]:
    """Yields the cuts of the rows of an embedding's table or a head, one for each token of the vocabulary."""
    bias = module.bias if isinstance(module, Linear) else None
    for parameter in (module.weight, bias):
        if parameter is not None:
            yield Cut(parameter, "tp", 0, parameter.spec.shape[0], "tokens of the vocabulary", optional=True)
