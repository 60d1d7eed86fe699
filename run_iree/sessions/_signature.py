"""Signatures in compiled modules, and checks of signatures."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from compile_hlo.directions import LoweredArgument, LoweredResult, Signature
from lang_core import DeviceError, OpError, TensorSpec

_DECLARATION: Final = re.compile(r"^\w+ func @[^(]*\((?P<arguments>.*)\) -> \((?P<results>.*)\)$", re.DOTALL)
_VALUE: Final = re.compile(r"%(?P<name>\w+): (?P<type>tensor<[^>]*>|[\w.]+)(?: \{(?P<attributes>[^}]*)\})?")
_ENCODING: Final = re.compile(r"iree\.abi\.encoding = (tensor<[^>]*>)")
_ALIAS: Final = re.compile(r"iree\.abi\.output = (\d+)")
_NAMES: Final = {"ui8": "u8", "i1": "bool"}  # our dtypes by MLIR's name, where that differs


def check_aliases(signature: Signature) -> None:
    """Refuses a result in the buffer of an argument of other bytes: IREE compiles that and fails in the call.

    Raises:
        DeviceError: an argument that a result takes over in place names no result, or one of another shape or dtype,
            or one that another argument names.
    """
    results = {result.name: result for result in signature.results}
    taken: dict[str, str] = {}
    for argument in signature.arguments:
        if argument.alias_result is None or not argument.in_place:
            continue
        result = results.get(argument.alias_result)
        if result is None:
            raise DeviceError(
                f"entry point {signature.name!r}: argument {argument.name!r} aliases result "
                f"{argument.alias_result!r}, which is not found; available: {', '.join(results)}; export again"
            )
        if result.spec != argument.spec or result.name in taken:
            other = f", as does {taken[result.name]!r}" if result.name in taken else ""
            raise DeviceError(
                f"entry point {signature.name!r}: argument {argument.name!r} ({argument.spec}) aliases result "
                f"{result.name!r} ({result.spec}){other}: an alias must be the only one, of the result's shape and "
                f"dtype; export again"
            )
        taken[result.name] = argument.name


def signature_of_reflection(entry_point: str, reflection: Mapping[str, str]) -> Signature:
    """Reads a signature from the reflection of a compiled function.

    It does not tell which arguments are written in place, so every tensor that is not donated is guarded.

    Args:
        entry_point: name of the function.
        reflection: reflection of the function.

    Raises:
        DeviceError: the reflection has no declaration, or a type in it is not static or not supported.
    """
    declaration = reflection.get("iree.abi.declaration", "")
    parts = _DECLARATION.match(declaration)
    if parts is None:
        raise DeviceError(
            f"entry point {entry_point!r} has no declaration in its reflection, found {declaration!r}; "
            f"pass its signature to the session"
        )
    matches = _VALUE.finditer(parts["results"])
    results = tuple(LoweredResult(match["name"], _spec(entry_point, match)[0]) for match in matches)
    arguments = tuple(_argument(entry_point, match, results) for match in _VALUE.finditer(parts["arguments"]))
    signature = Signature(entry_point, arguments, results)
    check_aliases(signature)
    return signature


def _argument(entry_point: str, match: re.Match[str], results: Sequence[LoweredResult]) -> LoweredArgument:
    """Returns a declared argument."""
    name, (spec, is_tensor) = match["name"], _spec(entry_point, match)
    alias = _ALIAS.search(match["attributes"] or "")
    if alias is None:
        return LoweredArgument(name, spec, "tensor" if is_tensor else "scalar", effective=None, guarded=is_tensor)
    if int(alias[1]) >= len(results):
        raise DeviceError(
            f"entry point {entry_point!r}: argument {name!r} aliases result {alias[1]}, found {len(results)} results; "
            f"export again"
        )
    return LoweredArgument(name, spec, alias_result=results[int(alias[1])].name, effective=None, in_place=True)


def _spec(entry_point: str, match: re.Match[str]) -> tuple[TensorSpec, bool]:
    """Returns the spec of a declared value, and whether it is a tensor."""
    encoding = _ENCODING.search(match["attributes"] or "")
    text = encoding[1] if encoding else match["type"]
    is_tensor = text.startswith("tensor<")
    *dims, dtype = (text[len("tensor<") : -1] if is_tensor else text).split("x")
    try:
        return TensorSpec(tuple(map(int, dims)), _NAMES.get(dtype, dtype)), is_tensor
    except (OpError, ValueError) as error:
        raise DeviceError(
            f"entry point {entry_point!r}: value {match['name']!r} has type {text!r}, "
            f"which is not supported; static shapes of our dtypes are"
        ) from error
