"""Signatures as an attribute of a compiled function, for loaders that have nothing else."""

from typing import Any, Final

from compile_hlo.directions._signature import LoweredArgument, Signature

# The key in IREE's reflection; the value is JSON.
REFLECTION: Final = "tapeline.signature"
"""Key of signatures in IREE's reflection; the value is JSON."""

DECLARATION: Final = "tapeline.declaration"
"""Key of a function's declaration, where IREE's own (``iree.abi.declaration``) has buffers in place of tensors."""


def reflected(signature: Signature) -> dict[str, list[dict[str, Any]]]:
    """Returns a signature as in kernel_config.json, without types, which the compiled function has."""
    taken_over = signature.taken_over
    return {
        "args": [_argument(argument) for argument in signature.arguments],
        "results": [
            {"name": result.name, "direction": "INOUT" if result.name in taken_over else "OUT"}
            for result in signature.results
        ],
    }


def _argument(argument: LoweredArgument) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": argument.name, "kind": argument.kind}
    if argument.kind == "tensor":
        fields |= {
            "direction": argument.declared,
            "effective": argument.effective,
            "guarded": argument.guarded,
        }
        if argument.alias_result is not None:
            fields |= {"alias_result": argument.alias_result, "in_place": argument.in_place}
    return fields
