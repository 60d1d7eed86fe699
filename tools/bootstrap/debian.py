"""Unpacks Debian packages into a folder of the user's: no root, and nothing of the host is installed or configured."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class InstallError(Exception):
    """The installation cannot be made; the message says what stands in the way."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Runs a program and returns its standard output; on failure raises InstallError with its last lines of errors."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=env, text=True, capture_output=True, check=False)
    if done.returncode:
        program = " ".join(str(c) for c in command[:2])
        raise InstallError(f"`{program}` failed with exit code {done.returncode}:\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def mirror_in(uris: str) -> str | None:
    """Returns the first Debian mirror in the output of ``apt-get --print-uris update``."""
    mirrors = re.findall(r"^'([^']+)/dists/[^/']+/(?:In)?Release", uris, re.MULTILINE)
    return next((uri.rstrip("/") for uri in mirrors if uri.rstrip("/").endswith("/debian")), None)


def mirror() -> str:
    """Returns the Debian mirror that this machine's own apt is set up with, its lists fetched or not."""
    uri = mirror_in(run("apt-get", "--print-uris", "update"))
    if uri is None:
        raise InstallError("apt is set up with no Debian mirror")
    return uri


def parse_depends(listing: str) -> dict[str, list[str]]:
    """Reads {package: the names it depends on} from the output of ``apt-cache depends``, without virtual packages."""
    depends: dict[str, list[str]] = {}
    here: list[str] = []
    for line in listing.splitlines():
        if line and not line.startswith((" ", "<")):
            depends[line.strip()] = here = []
        elif match := re.match(r"\s+\|?(?:Pre)?Depends: ([^<\s]+)$", line):
            here.append(match[1])
    return depends


class Apt:
    """apt with a configuration, package lists and status of its own.

    Args:
        state: folder of the configuration, lists and downloads.
        suite: name of the Debian suite, e.g. ``bookworm``.
    """

    def __init__(self, state: Path, suite: str) -> None:
        self._suite = suite
        for folder in ("state/lists/partial", "cache/archives/partial", "etc"):
            (state / folder).mkdir(parents=True)
        (state / "status").touch()
        (state / "etc/sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
        (state / "etc/apt.conf").write_text(f"""
            Dir::State "{state}/state";
            Dir::State::status "{state}/status";
            Dir::Cache "{state}/cache";
            Dir::Etc::sourcelist "{state}/etc/sources.list";
            Dir::Etc::sourceparts "/dev/null";
            Dir::Etc::preferences "/dev/null";
            Dir::Etc::preferencesparts "/dev/null";
            APT::Sandbox::User "";
            APT::Install-Recommends "false";
            Acquire::Languages "none";
            quiet "2";
        """)
        self._env = {**os.environ, "APT_CONFIG": str(state / "etc/apt.conf"), "LC_ALL": "C"}

    def update(self) -> None:
        """Fetches the suite's package lists."""
        run("apt-get", "update", env=self._env)

    def depends(self, packages: Iterable[str]) -> dict[str, list[str]]:
        """Returns {package: the names it depends on} for those of ``packages`` that the suite has."""
        # Its exit code is an error where one of the names is unknown; the rest is listed all the same.
        command = ["apt-cache", "depends", "--important", *packages]
        return parse_depends(subprocess.run(command, env=self._env, text=True, capture_output=True, check=False).stdout)

    def closure(self, roots: Iterable[str], follow: re.Pattern[str], present: Container[str] = ()) -> list[str]:
        """Returns ``roots`` and, transitively, the packages they depend on.

        Args:
            roots: names of packages.
            follow: pattern that matches the whole name of each dependency to take.
            present: names of packages that are not needed, with what they depend on.

        Raises:
            InstallError: the suite lacks one of ``roots``.
        """
        wanted = set(roots)
        todo, done = set(wanted), dict[str, list[str]]()
        while todo:
            depends = self.depends(sorted(todo))
            if missing := (todo & wanted) - set(depends):
                raise InstallError(f"Debian {self._suite} has no {', '.join(sorted(missing))}")
            done |= depends
            names = {name for names in depends.values() for name in names if follow.fullmatch(name)}
            todo = {name for name in names if name not in done and name not in present}
            if not depends:  # what is left are alternatives that the suite lacks
                break
        return sorted(done)

    def download(self, packages: Iterable[str], where: Path) -> None:
        """Fetches the packages' files into the folder ``where``."""
        run("apt-get", "download", *packages, cwd=where, env=self._env)


def unpack(apt: Apt, packages: list[str], root: Path) -> None:
    """Downloads packages and unpacks them below ``root``, without documentation and headers."""
    debs = root.parent / "debs"
    debs.mkdir()
    apt.download(packages, debs)
    size = sum(deb.stat().st_size for deb in debs.iterdir()) / 1e6
    print(f"Unpacking {len(packages)} packages, {size:.0f} MB", flush=True)
    for deb in debs.iterdir():
        run("dpkg", "-x", deb, root)
    for part in ("usr/share/doc", "usr/share/man", "usr/include"):
        shutil.rmtree(root / part, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on the file ``path``; waits for the process that holds it now."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # the kernel drops it when the file is closed, however that comes
        yield


def install(final: Path, build: Callable[[Path], None]) -> bool:
    """Makes the folder ``final`` by calling ``build`` on a new folder beside it, unless ``final`` is there.

    ``final`` appears at once and complete, or not at all. A second process waits for the first, and then
    finds the work done.

    Returns:
        True if ``build`` was called, False if the folder was there.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    with locked(final.with_name(final.name + ".lock")):
        if final.exists():
            return False
        with tempfile.TemporaryDirectory(prefix=final.name + ".", dir=final.parent) as parent:
            root = Path(parent) / "root"
            root.mkdir()
            build(root)
            root.rename(final)
    return True
