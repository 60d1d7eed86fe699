"""Checks of a bundle's description against itself and against its module."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compile_hlo.emit import is_helper
from lang_core import DescriptionError, near_names
from tapeline.analysis.outline import PrivateFunction, private_functions
from tapeline.bundle._json_text import sorted_pieces
from tapeline.bundle._kernels import KernelRecord

_PARTS = ("entry_points", "kernels")
_FIELDS = "fields"
_HASHES = "sha256"


def seals_of(fields: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Returns the SHA-256 of each entry point, kernel and other field, as JSON with sorted keys, by name.

    The module does not have all that these say (the directions inside a kernel, the range of a position, the hashes of
    files), so an edit could not be seen there.
    """
    seals = {part: {entry["name"]: _sha256(entry) for entry in fields[part]} for part in _PARTS}
    rest = {
        name: _sha256(sorted(value) if name == _HASHES else value)  # a wrong hash is told by the file itself
        for name, value in fields.items()
        if name not in (*_PARTS, "seals")
    }
    return {**seals, _FIELDS: rest}


def _sha256(entry: Any) -> str:
    digest = hashlib.sha256()
    for piece in sorted_pieces(entry):
        digest.update(piece.encode())
    return digest.hexdigest()


def check_seals(fields: Mapping[str, Any]) -> None:
    """Refuses entries that are not those that the export wrote; a kernel without a signature asserts nothing.

    Args:
        fields: contents of the file.

    Raises:
        DescriptionError: an entry was changed, added or removed.
    """
    sealed = fields.get("seals")
    if sealed is None:
        return
    parts = (*_PARTS, _FIELDS) if _FIELDS in sealed else _PARTS  # earlier versions sealed no more
    _check_names("seals", sealed, parts, "this version")
    made = seals_of(fields)
    for name, seal in sealed.get(_FIELDS, {}).items():
        if made[_FIELDS].get(name) != seal:
            raise DescriptionError(f"{name} was edited: its SHA-256 is not {seal[:12]}...")
    _check_names("fields", made[_FIELDS], sealed.get(_FIELDS, made[_FIELDS]), "the seals")
    for part in _PARTS:
        seals, known = made[part], sealed[part]
        _check_names(part, seals, known, "its seals")
        for entry in fields[part]:
            name = entry["name"]
            asserts = part == "entry_points" or entry.get("signature") is not None
            if asserts and seals[name] != known[name]:
                raise DescriptionError(
                    f"{part}: {name!r} was edited: its SHA-256 is {seals[name][:12]}..., expected {known[name][:12]}..."
                )


def _check_names(part: str, listed: Iterable[str], expected: Iterable[str], where: str) -> None:
    names, known = dict.fromkeys(listed), dict.fromkeys(expected)
    for name in names:
        if name not in known:
            raise DescriptionError(
                f"{part}: {name!r} is listed, and not found in {where}; available: "
                f"{', '.join(known) or 'none'}{near_names(name, known)}"
            )
    for name in known:
        if name not in names:
            raise DescriptionError(f"{part}: {name!r} is not listed, and found in {where}")


def check_kernels(module: Path, kernels: Sequence[KernelRecord], *, helpers: bool) -> None:
    """Compares the kernels of a description with the private functions of ``module.mlir``.

    Args:
        module: path of the text.
        kernels: kernels of the description.
        helpers: whether the description has helper functions too (schema 2).

    Raises:
        DescriptionError: a kernel is listed that the module does not have, or the other way round; or types or the
            number of call sites differ.
        InputError: the text cannot be read.
    """
    functions = {
        name: function for name, function in private_functions(module).items() if helpers or not is_helper(name)
    }
    _check_names("kernels", [kernel.name for kernel in kernels], functions, module.name)
    for kernel in kernels:
        _check_kernel(kernel, functions[kernel.name], module.name)


def _check_kernel(kernel: KernelRecord, function: PrivateFunction, module: str) -> None:
    facts: list[tuple[str, Any, Any]] = [("call_sites", kernel.call_sites, function.call_sites)]
    if kernel.arguments or kernel.results:
        facts.append(("arguments", [repr(spec) for spec in kernel.argument_specs], function.arguments))
        facts.append(("results", [repr(spec) for spec in kernel.result_specs], function.results))
    if kernel.signature is not None:
        tensors = sum(not kind.endswith("[]") for kind in function.arguments) + len(function.results)
        facts.append(("length of the signature", len(kernel.signature), tensors))
    for field, described, actual in facts:
        if described != actual:
            raise DescriptionError(
                f"kernels: {kernel.name!r}: {field} is {described} in the description, {actual} in {module}"
            )
