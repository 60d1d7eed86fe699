"""Directions as an attribute of a compiled function, for loaders that have nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from compile_hlo.directions._direction import ArgumentDirection
from lang_core import Argument

# The key in IREE's reflection; the value is JSON.
REFLECTION: Final = "tapeline.signature"


def reflected(
    arguments: Sequence[Argument], results: Iterable[str], directions: Sequence[ArgumentDirection]
) -> dict[str, list[dict[str, Any]]]:
    """Arguments and results as in kernel_config.json, without types, which the compiled function has.

    Args:
        arguments: of an entry point.
        results: their names.
        directions: of the tensor arguments.
    """
    known = {each.name: each for each in directions}
    args: list[dict[str, Any]] = []
    for argument in arguments:
        fields: dict[str, Any] = {"name": argument.name, "kind": argument.kind}
        if argument.name in known:
            each = known[argument.name]
            fields |= {"direction": each.declared, "effective": each.effective, "guarded": each.guarded}
            if argument.alias_result is not None:
                fields |= {"alias_result": argument.alias_result, "in_place": each.in_place}
        args.append(fields)
    taken = {argument.alias_result for argument in arguments}
    return {
        "args": args,
        "results": [{"name": name, "direction": "INOUT" if name in taken else "OUT"} for name in results],
    }
