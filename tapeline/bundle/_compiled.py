"""Compiled modules of bundles: modules compiled by this user run, and others are compiled again."""

import contextlib
import dataclasses
import importlib.metadata
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import run_iree
from autotune import iree_compiler
from lang_core import InputError, MissingPackageError
from tapeline.bundle._files import sha256_of
from tapeline.bundle._module_cache import module_cache
from tapeline.bundle._trust import is_compiled_here, note_compiled
from tapeline.cli import say

TRUST: Final = "trust_compiled"
"""Name of the option that runs a compiled module as it is."""

_COMPILER: Final = "iree-base-compiler"
_OPS: Final = re.compile(
    r"(?:stablehlo|func|tensor|tapeline|mhlo|sdy)\..*|util\.global(?:\.load|\.store)?|flow\.parameter\.named|"
    r"tf\.aliasing_output|iree\.reflection|builtin\.module|arith\.constant"
)
# A string, with what may stand before and behind it; a comment; a name of the module's own; a name of a dialect.
_TOKEN: Final = re.compile(
    r'(?P<at>@)?"(?P<string>(?:[^"\\]|\\.)*)"(?P<call>\s*[(<])?|//.*|[@%^][\w.$:#-]+|'
    r"[#!]?(?P<name>[A-Za-z_][\w$]*(?:\.[A-Za-z_][\w$]*)+)"
)
_QUOTED_OP: Final = re.compile(r"[a-z_]\w*(?:\.\w+)+")
_RESOURCES: Final = "{-#"


def compiled_target(name: str) -> "run_iree.Target":
    """Returns a compile target with the CPU kernels that are remembered for this machine."""
    target = run_iree.target_named(name)
    return (
        target
        if target.kernels is None
        else dataclasses.replace(target, kernels=iree_compiler.remembered_kernels().cfg)
    )


def compiler_version() -> str:
    """Returns the version of the IREE compiler; empty if it is not installed."""
    try:
        return importlib.metadata.version(_COMPILER)
    except importlib.metadata.PackageNotFoundError:
        return ""


def note_compiled_here(path: Path) -> None:
    """Records that a compiled module was compiled by this user.

    Raises:
        InputError: another user can write the cache.
    """
    note_compiled(sha256_of(path), compiler_version())


@contextlib.contextmanager
def runnable(
    executable: Path, text: Path, target: str, described: Mapping[str, Any], *, trust: bool
) -> Iterator[tuple[Path, bool]]:
    """Yields a compiled module to run, and whether it is the bundle's own file.

    A compiled module is native code. The bundle's own runs if this user compiled it, or with ``trust``; else the text
    is compiled here. The file that is yielded may be gone when the block has ended: load it inside.

    Args:
        executable: compiled module of the bundle, which exists and has the hash of the description.
        text: its text, which has the hash of the description.
        target: name of the compile target.
        described: the manifest's entry of the target.
        trust: True runs the bundle's own module.

    Raises:
        InputError: the text is missing, or holds more than an export writes.
        MissingPackageError: the compiler is not installed.
    """
    if trust or is_compiled_here(sha256_of(executable)):
        yield executable, True
        return
    bundle, hint = executable.parent, f"`{TRUST}` runs it as it is, if you trust its origin"
    problem = f"{executable} was not compiled by this user on this machine"
    if not text.is_file():
        raise InputError(f"{problem}, and the bundle has no {text.name} to compile: {hint}")
    if not compiler_version():
        raise MissingPackageError(
            f"{problem}, and the IREE compiler is not installed to compile {text.name}: pip install {_COMPILER}, or "
            f"{hint}"
        )
    check_text_is_plain(text, hint)
    say(f"compiling {text.name} of {bundle}: its {executable.name} was not compiled by this user ({hint}) ...")
    with tempfile.TemporaryDirectory(prefix="tapeline-module-") as folder:
        output = Path(folder, executable.name)
        chosen = compiled_target(target)
        more = _tuned(described.get("flags"), chosen)
        run_iree.compile_module(text, output, chosen, extra_flags=more, cache=module_cache(say))
        yield output, False


def check_text_is_plain(text: Path, hint: str) -> None:
    """Checks that a module's text has only ops that exports write: others could bring native code into the result.

    Raises:
        InputError: it has others.
    """
    with text.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            foreign = _foreign(line)
            if foreign is not None:
                raise InputError(
                    f"{text}:{number}: {foreign} is not part of a module that export writes, and is not compiled: "
                    f"export the bundle again; {hint}"
                )


def _foreign(line: str) -> str | None:
    """Returns the part of a module's line that exports never write; None if there is nothing."""
    if _RESOURCES in line:
        return _RESOURCES
    declares = line.lstrip().startswith(("func.func private", "func.func @")) and not line.rstrip().endswith("{")
    if declares:
        return "a function without a body"
    for token in _TOKEN.finditer(line):
        name = token["name"]
        if token["call"] is not None and token["at"] is None and _QUOTED_OP.fullmatch(token["string"]):
            name = token["string"]
        if name is not None and not _OPS.fullmatch(name):
            return repr(name)
    return None


def _tuned(flags: object, target: "run_iree.Target") -> tuple[str, ...]:
    """Returns the manifest's flags that an export with tuning has chosen; other flags are dropped."""
    more = tuple(flag for flag in flags if flag not in target.flags) if isinstance(flags, list) else ()
    return more if more in iree_compiler.CANDIDATE_FLAGS else ()
