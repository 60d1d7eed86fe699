"""Description of the tables of a bundle with adapters that requests choose."""

from typing import Any

from lang_core import WeightSource
from transformer_core.flow import adapted_linears
from transformer_core.models import Model, adapter_places


def describe_tables(model: Model[Any], source: WeightSource, count: int, rank: int) -> dict[str, Any]:
    """Returns the entry ``adapters`` of a bundle's model.

    Args:
        model: modules.
        source: checkpoint, which says how the weights are stored that adapters name.
        count: number of adapters.
        rank: greatest rank.

    Returns:
        ``count``, ``rank``; ``tables``: names of the weights of each table, in its order; ``places``: stored matrix of
        each weight that is not stored as it is, or None if it takes no adapter.
    """
    linears = adapted_linears(model)
    tables = {linear.name: [f"{path}.weight" for path in linear.layers] for linear in linears}
    shapes = {weight: (linear.outputs, linear.inputs) for linear in linears for weight in tables[linear.name]}
    places = adapter_places(model, source, shapes)
    return {
        "count": count,
        "rank": rank,
        "tables": tables,
        "places": {name: None if place is None else place.to_dict() for name, place in places.items()},
    }
