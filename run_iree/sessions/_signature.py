"""Signatures in compiled modules, and checks of signatures."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from compile_hlo.directions import DECLARATION, REFLECTION, LoweredArgument, LoweredResult, Signature, reflected
from lang_core import DescriptionError, DeviceError, OpError, TensorSpec, json_value, near_names

_DECLARATION: Final = re.compile(r"^\w+ func @[^(]*\((?P<arguments>.*)\) -> \((?P<results>.*)\)$", re.DOTALL)
_VALUE: Final = re.compile(r"%(?P<name>\w+): (?P<type>tensor<[^>]*>|[\w.]+)(?: \{(?P<attributes>[^}]*)\})?")
_ENCODING: Final = re.compile(r"iree\.abi\.encoding = (tensor<[^>]*>)")
_ALIAS: Final = re.compile(r"iree\.abi\.output = (\d+)")
_NAMES: Final = {"ui8": "u8", "i1": "bool"}  # our dtypes by MLIR's name, if that differs


def check_aliases(signature: Signature) -> None:
    """Refuses a result in the buffer of an argument of other bytes: IREE compiles that and fails in the call.

    Raises:
        DeviceError: an argument that a result takes over in place does not name a result, names one of another shape or
            dtype, or one that another argument names.
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


class _Difference(NamedTuple):
    """Field that a description and its module state differently."""

    entry: str
    field: str
    described: Any
    compiled: Any


# Absent for an argument whose directions were not recorded: what the module says then counts.
_DIRECTIONS: Final = ("effective", "guarded", "in_place")


def check_described(recorded: Signature, reflection: Mapping[str, str], origin: str) -> None:
    """Refuses a recorded signature that is not that of the compiled function.

    Args:
        recorded: signature as a bundle describes it.
        reflection: reflection of the compiled function.
        origin: path of the module, for messages.

    Raises:
        DescriptionError: an argument, a result, an alias or a direction differs.
        DeviceError: the function cannot be called; see ``signature_of_reflection``.
    """
    compiled = signature_of_reflection(recorded.name, reflection)
    differences = [
        *_type_differences(recorded, compiled),
        *_direction_differences(recorded, reflection),
        *_alias_differences(recorded, compiled),
    ]
    if differences:
        entry, field, described, actual = differences[0]
        raise DescriptionError(
            f"entry point {recorded.name!r}: {entry}: {field} is {described} in the description, {actual} in the "
            f"module {origin!r}: the two do not belong together: export again"
        )


def check_entry_points(recorded: Sequence[Signature], compiled: Sequence[str], origin: str) -> None:
    """Refuses signatures of functions that the module does not have.

    Raises:
        DescriptionError: a function is not found.
    """
    for signature in recorded:
        if signature.name not in compiled:
            raise DescriptionError(
                f"entry point {signature.name!r} is described, and not found in the module {origin!r}; available: "
                f"{', '.join(compiled)}{near_names(signature.name, compiled)}: the two do not belong together: export "
                f"again"
            )


def _type_differences(recorded: Signature, compiled: Signature) -> Iterator[_Difference]:
    """Yields differences in types, which every compiled function declares."""
    for part, mine, theirs in (
        ("arguments", recorded.arguments, compiled.arguments),
        ("results", recorded.results, compiled.results),
    ):
        if len(mine) != len(theirs):
            yield _Difference("signature", f"number of {part}", len(mine), len(theirs))
    for mine, theirs in zip(recorded.arguments, compiled.arguments, strict=False):
        if (mine.kind, mine.spec) != (theirs.kind, theirs.spec):
            yield _Difference(
                f"argument {mine.name!r}", "type", f"{mine.kind} {mine.spec!r}", f"{theirs.kind} {theirs.spec!r}"
            )
    for mine, theirs in zip(recorded.results, compiled.results, strict=False):
        if mine.spec != theirs.spec:
            yield _Difference(f"result {mine.name!r}", "type", mine.spec, theirs.spec)


def _alias_differences(recorded: Signature, compiled: Signature) -> Iterator[_Difference]:
    """Yields a difference in the arguments that results take over in place."""
    if recorded.aliases != compiled.aliases:
        yield _Difference("signature", "argument by aliased result", recorded.aliases, compiled.aliases)


def _direction_differences(recorded: Signature, reflection: Mapping[str, str]) -> Iterator[_Difference]:
    """Yields differences in names and directions, which modules of ``lower_module`` have."""
    if REFLECTION not in reflection:
        return
    rows = {part: _rows(recorded.name, reflection, part) for part in ("args", "results")}
    unknown = {argument.name for argument in recorded.arguments if argument.effective is None}
    for part, mine in reflected(recorded).items():
        for described, actual in zip(mine, rows[part], strict=False):
            name = described["name"]
            fields = [key for key in described | actual if key not in _DIRECTIONS or name not in unknown]
            for key in fields:
                if described.get(key) != actual.get(key):
                    entry = f"{'argument' if part == 'args' else 'result'} {name!r}"
                    yield _Difference(entry, key, described.get(key), actual.get(key))


def signature_of_reflection(entry_point: str, reflection: Mapping[str, str]) -> Signature:
    """Reads a signature from the reflection of a compiled function, with the names of the lowering if it has them.

    It does not tell which arguments are written in place, so every tensor that is not donated is guarded.

    Args:
        entry_point: name of the function.
        reflection: reflection of the function.

    Raises:
        DescriptionError: the names that a lowering wrote cannot be read.
        DeviceError: the reflection lacks the declaration, or a type in it is not static or not supported.
    """
    declaration = reflection.get(DECLARATION) or reflection.get("iree.abi.declaration", "")
    parts = _DECLARATION.match(declaration)
    if parts is None:
        raise DeviceError(
            f"entry point {entry_point!r} has no declaration in its reflection, found {declaration!r}; "
            f"pass its signature to the session"
        )
    values = {part: [*_VALUE.finditer(parts[part])] for part in ("arguments", "results")}
    names = {part: _names(entry_point, reflection, part, matches) for part, matches in values.items()}
    results = tuple(
        LoweredResult(name, _spec(entry_point, match)[0])
        for name, match in zip(names["results"], values["results"], strict=True)
    )
    arguments = tuple(
        _argument(entry_point, name, match, results)
        for name, match in zip(names["arguments"], values["arguments"], strict=True)
    )
    signature = Signature(entry_point, arguments, results)
    check_aliases(signature)
    return signature


def _rows(entry_point: str, reflection: Mapping[str, str], part: str) -> list[dict[str, Any]]:
    """Returns the lowering's record of the arguments or results of a function.

    Raises:
        DescriptionError: it cannot be read.
    """
    try:
        theirs = json_value(reflection[REFLECTION])
        return {name: [dict(row) for row in theirs[name]] for name in ("args", "results")}[part]
    except (KeyError, TypeError, ValueError) as error:
        raise DescriptionError(
            f"entry point {entry_point!r}: {REFLECTION} of the compiled function cannot be read ({error}); export again"
        ) from None


def _names(
    entry_point: str, reflection: Mapping[str, str], part: str, matches: Sequence[re.Match[str]]
) -> tuple[str, ...]:
    """Returns the names of arguments or results: those of the lowering, or the compiler's (``input0``) without one."""
    declared = tuple(match["name"] for match in matches)
    if REFLECTION not in reflection:
        return declared
    rows = _rows(entry_point, reflection, "args" if part == "arguments" else part)
    names = tuple(row.get("name") for row in rows)
    if len(set(names)) != len(declared) or not all(isinstance(name, str) for name in names):
        raise DescriptionError(
            f"entry point {entry_point!r}: {REFLECTION} of the compiled function names the {part} "
            f"{', '.join(map(str, names))}, and the function has {len(declared)}: export again"
        )
    return tuple(map(str, names))


def _argument(entry_point: str, name: str, match: re.Match[str], results: Sequence[LoweredResult]) -> LoweredArgument:
    """Returns a declared argument."""
    spec, is_tensor = _spec(entry_point, match)
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
