"""Packages of third_party/requirements_lock.txt, and which of them a user of the wheels gets."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

_PIN: Final = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
_VIA: Final = re.compile(r"\s+#\s+(?:via\s+)?([a-z0-9._-]+)\s*$")
# The first heading in requirements.in below which nothing is imported by a wheel.
_NOT_SHIPPED: Final = "# The documentation site"


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """Package of the lock.

    Attributes:
        name: its name on the index.
        version: the locked version.
        wanted_by: packages of the lock that require it.
        direct: whether a wheel imports it.
    """

    name: str
    version: str
    wanted_by: tuple[str, ...]
    direct: bool = False


def read_lock(lock: Path) -> list[LockedPackage]:
    """Returns the packages of a lock, in its order."""
    text = lock.read_text(encoding="utf-8")
    starts = [*(match.start() for match in re.finditer(r"(?m)^[A-Za-z0-9]", text)), len(text)]
    return [_package(text[start:stop]) for start, stop in itertools.pairwise(starts)]


def shipped(packages: list[LockedPackage], requirements: Path) -> Iterator[LockedPackage]:
    """Yields the packages that come with the wheels: those that they import, and what these require.

    Args:
        packages: of the lock.
        requirements: requirements.in.
    """
    imported = requirements.read_text(encoding="utf-8").split(_NOT_SHIPPED)[0].splitlines()
    direct = {_key(re.split(r"[=<>\[ ]", line)[0]) for line in imported if line and not line.startswith("#")}
    roots = set(direct)
    while True:
        more = {_key(package.name) for package in packages if roots & {_key(name) for name in package.wanted_by}}
        if more <= roots:
            break
        roots |= more
    yield from (replace(p, direct=_key(p.name) in direct) for p in packages if _key(p.name) in roots)


def _package(text: str) -> LockedPackage:
    match = _PIN.match(text)
    if match is None:
        raise ValueError(f"no package==version at {text[:60]!r}")
    lines = text.splitlines()[1:]
    wanted = tuple(via[1] for line in lines if (via := _VIA.match(line)))
    return LockedPackage(match[1], match[2], wanted)


def _key(name: str) -> str:
    """Returns a name in the one spelling by which packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()
